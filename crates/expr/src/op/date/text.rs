//! Dates in texts: by a format, or in one of the common forms.
//!
//! The common forms are ISO 8601 (`2017-02-08`, `2017-02-08T12:10:40.787Z`, `20170208T121040`,
//! ordinal and week dates), with a space for the `T`; `July 4, 2017`, `4 July 2017`,
//! `2017-Jul-04`, optionally after a day of the week; `7/4/2017`, `04-07-2017`, `4.7.2017`;
//! `@seconds`. An offset or the abbreviation of a time zone may follow. The reference's free-form
//! parser accepts further forms, such as `next monday`.

use mayfly_base::{Error, ErrorCode, Result};

use super::civil::{Civil, days_in_month, days_of, weekday};
use super::format::{abbreviated_month, month_named};
use super::zone::{Zone, abbreviated, fixed_offset};

pub(super) fn conversion_fault(text: String) -> Error {
    Error::new(ErrorCode::ConversionFailure, text)
}

/// Parses a date by a format, or in a common form. The time zone applies unless the text contains
/// one.
///
/// # Errors
/// 241 ConversionFailure.
pub(crate) fn from_text(text: &str, format: Option<&str>, zone: Option<&Zone>) -> Result<i64> {
    let mut reader = Reader { text, at: 0, parts: Parts::default() };
    let read = match format {
        Some(format) => reader.by_format(format),
        None => reader.freely(),
    };
    if read.is_none() {
        let at = reader.at;
        let what = text[at.min(text.len())..].chars().next();
        let what = what.map_or_else(
            || "Unexpected end of text".to_owned(),
            |found| format!("Unexpected character '{found}'"),
        );
        return Err(conversion_fault(format!("Error parsing date string '{text}'; {at}: {what}")));
    }
    reader.parts.finish(text, zone)
}

/// The components parsed so far.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso: (Option<i64>, Option<i64>, Option<i64>),
    time: Option<[i64; 4]>,
    zone: Option<Zone>,
    moment: Option<i64>,
    /// The named day, with Sunday as 0.
    weekday: Option<i64>,
}

impl Parts {
    fn finish(self, text: &str, zone: Option<&Zone>) -> Result<i64> {
        // UTC does not contradict an offset.
        if self.zone.is_some() && zone.is_some_and(|zone| !zone.is_utc()) {
            let what = "you cannot pass in a date/time string with GMT offset together with a timezone argument";
            return Err(conversion_fault(what.to_owned()));
        }
        let invalid =
            || conversion_fault(format!("Error parsing date string '{text}'; 0: Invalid date"));
        if let Some(moment) = self.moment {
            return Ok(moment);
        }
        let days = match (self.year, self.month, self.day, self.day_of_year, self.iso) {
            (Some(year), None, None, Some(of_year), _) => {
                let last = days_of(year + 1, 1, 1) - days_of(year, 1, 1);
                (1..=last).contains(&of_year).then(|| days_of(year, 1, 1) + of_year - 1)
            }
            (Some(year), Some(month), Some(day), ..) => {
                let known = (1..=12).contains(&month);
                (known && (1..=days_in_month(year, month)).contains(&day))
                    .then(|| days_of(year, month, day))
            }
            (None, None, None, None, (Some(year), week, weekday_)) => {
                let (week, day) = (week.unwrap_or(1), weekday_.unwrap_or(1));
                let fourth = days_of(year, 1, 4);
                let monday = fourth - (weekday(fourth) + 6) % 7;
                ((1..=53).contains(&week) && (1..=7).contains(&day))
                    .then(|| monday + (week - 1) * 7 + day - 1)
            }
            _ => {
                return Err(conversion_fault(format!(
                    "an incomplete date/time string has been found, with elements missing: \"{text}\""
                )));
            }
        };
        // A named day is that day or the first such day after it.
        let days = days.ok_or_else(invalid)?;
        let days = days + self.weekday.map_or(0, |named| (named - weekday(days)).rem_euclid(7));
        let [hour, minute, second, millisecond] = self.time.unwrap_or_default();
        if hour > 24 || minute > 59 || second > 59 {
            return Err(invalid());
        }
        let (year, month, day) = super::civil::date_of(days);
        let civil = Civil { year, month, day, hour, minute, second, millisecond };
        let zone = self.zone.as_ref().or(zone).unwrap_or(&Zone::UTC);
        civil.local_ms().and_then(|local| zone.utc_ms(local)).ok_or_else(invalid)
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    parts: Parts,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn take(&mut self, literal: char) -> Option<()> {
        if !self.rest().starts_with(literal) {
            return None;
        }
        self.at += literal.len_utf8();
        Some(())
    }

    /// Parses a number with this many digits.
    fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let digits = self.rest().bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return None;
        }
        let number = self.rest()[..digits].parse().ok()?;
        self.at += digits;
        Some(number)
    }

    fn word(&mut self) -> Option<&'t str> {
        let letters = self.rest().bytes().take_while(u8::is_ascii_alphabetic).count();
        let word = &self.rest()[..letters];
        self.at += letters;
        (letters > 0).then_some(word)
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    /// Parses a fraction of at most this many digits as milliseconds, truncated.
    fn fraction(&mut self, most: usize) -> Option<i64> {
        let digits = self.rest().bytes().take(most).take_while(u8::is_ascii_digit).count();
        let kept = &self.rest()[..digits.min(3)];
        let value: i64 = kept.parse().ok()?;
        self.at += digits;
        Some(value * 10_i64.pow(3 - kept.len() as u32))
    }

    fn zone(&mut self) -> Option<()> {
        let length = self
            .rest()
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || b"+-:/_".contains(byte))
            .count();
        let name = &self.rest()[..length];
        // Identifiers such as Europe/London are not accepted.
        let offset = fixed_offset(name.strip_prefix("GMT").unwrap_or(name));
        if offset.is_some_and(|offset| offset.abs() >= 25 * 3_600_000) {
            return None;
        }
        let zone = Zone::Fixed(offset.or_else(|| abbreviated(name))?);
        self.parts.zone = Some(zone);
        self.at += length;
        Some(())
    }

    fn by_format(&mut self, format: &str) -> Option<()> {
        let mut letters = format.chars();
        let mut time = [0; 4];
        let mut timed = false;
        while let Some(letter) = letters.next() {
            if letter != '%' {
                self.take(letter)?;
                continue;
            }
            match letters.next()? {
                // Leading zeros may be missing, except from minutes and seconds.
                'd' => self.parts.day = Some(self.number(1, 2)?),
                'm' => self.parts.month = Some(self.number(1, 2)?),
                'Y' => self.parts.year = Some(self.number(1, 4)?),
                'j' => {
                    // The reference counts from 0 here, and goes on into the next year.
                    let first = days_of(self.parts.year?, 1, 1);
                    let (year, month, day) = super::civil::date_of(first + self.number(1, 3)?);
                    (self.parts.year, self.parts.month) = (Some(year), Some(month));
                    self.parts.day = Some(day);
                }
                'G' => self.parts.iso.0 = Some(self.number(1, 4)?),
                'V' => self.parts.iso.1 = Some(self.number(1, 2)?),
                'u' => self.parts.iso.2 = Some(self.number(1, 1)?),
                'b' | 'B' => {
                    let word = self.word()?;
                    let month = month_named(word)?;
                    self.parts.month = Some(month);
                }
                'z' => self.zone()?,
                'Z' => {
                    let sign = if self.take('-').is_some() { -1 } else { 1 };
                    let _ = self.take('+');
                    let minutes = self.number(1, 4)?;
                    self.parts.zone = Some(Zone::Fixed(sign * minutes * 60_000));
                }
                '%' => self.take('%')?,
                what => {
                    timed = true;
                    match what {
                        'H' => time[0] = self.number(1, 2)?,
                        'M' => time[1] = self.number(2, 2)?,
                        'S' => time[2] = self.number(2, 2)?,
                        _ => time[3] = self.fraction(3)?,
                    }
                }
            }
        }
        self.parts.time = timed.then_some(time);
        self.rest().is_empty().then_some(())
    }

    fn freely(&mut self) -> Option<()> {
        self.blanks();
        if self.take('@').is_some() {
            let sign = if self.take('-').is_some() { -1 } else { 1 };
            let seconds = self.number(1, 15)?;
            let fraction = match self.take('.') {
                Some(()) => self.fraction(usize::MAX)?,
                None => 0,
            };
            self.parts.moment = Some(sign * (seconds * 1000 + fraction));
            return self.rest().is_empty().then_some(());
        }
        if self.is_clock() {
            self.clock(true)?;
            self.blanks();
        }
        self.day()?;
        self.blanks();
        // A "T" alone is the zone of that letter.
        let lettered = self.rest().starts_with(['T', 't']) && self.rest().len() > 1;
        self.at += usize::from(lettered);
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            self.clock(!lettered)?;
        } else {
            self.named_time();
        }
        self.blanks();
        if !self.rest().is_empty() {
            self.zone()?;
        }
        self.blanks();
        self.rest().is_empty().then_some(())
    }

    /// Whether a time of day follows, such as `9:30`.
    fn is_clock(&self) -> bool {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        matches!(digits, 1 | 2) && self.rest().as_bytes().get(digits) == Some(&b':')
    }

    /// Parses a day in any of its forms.
    fn day(&mut self) -> Option<()> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        match digits {
            0 => self.worded_day(),
            8 => {
                self.parts.year = self.number(4, 4);
                self.parts.month = self.number(2, 2);
                self.parts.day = self.number(2, 2);
                Some(())
            }
            4 => self.iso_day(),
            1 | 2 if self.rest().as_bytes().get(digits) == Some(&b'/') => {
                self.parts.month = self.number(1, 2);
                self.take('/')?;
                self.parts.day = self.number(1, 2);
                self.take('/')?;
                self.short_year()
            }
            1 | 2 if self.is_day_first(digits) => {
                self.parts.day = self.number(1, 2);
                self.separator();
                self.parts.month = self.number(1, 2);
                self.separator();
                self.parts.year = Some(self.number(4, 4)?);
                Some(())
            }
            1 | 2 => {
                self.parts.day = self.number(1, 2);
                self.separator();
                let word = self.word()?;
                let month = month_named(word)?;
                self.parts.month = Some(month);
                self.separator();
                self.parts.year = Some(self.number(4, 4)?);
                Some(())
            }
            _ => None,
        }
    }

    fn separator(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '-', ',', '.']).len();
    }

    /// Whether digits follow a day of this many digits and a `-` or `.`, as in `4.7.2017`.
    fn is_day_first(&self, digits: usize) -> bool {
        let rest = self.rest().as_bytes();
        matches!(rest.get(digits), Some(b'-' | b'.'))
            && rest.get(digits + 1).is_some_and(u8::is_ascii_digit)
    }

    /// Parses a year of one to four digits; of two digits, those below 70 follow 2000.
    fn short_year(&mut self) -> Option<()> {
        let year = self.number(1, 4)?;
        self.parts.year = Some(match year {
            0..70 => year + 2000,
            70..100 => year + 1900,
            year => year,
        });
        Some(())
    }

    /// Parses `noon` and `midnight`.
    fn named_time(&mut self) {
        for (name, hour) in [("noon", 12), ("midnight", 0)] {
            if self.rest().get(..name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name)) {
                self.at += name.len();
                self.parts.time = Some([hour, 0, 0, 0]);
            }
        }
    }

    fn iso_day(&mut self) -> Option<()> {
        let year = self.number(4, 4)?;
        let dash = self.take('-').is_some() || self.take('/').is_some();
        if !dash {
            self.blanks();
        }
        if let Some(month) = self.month_word() {
            self.parts.year = Some(year);
            self.parts.month = Some(month);
            // A month alone means its first day.
            let day = self.take('-').map_or(Some(1), |()| self.number(1, 2));
            self.parts.day = Some(day?);
            return Some(());
        }
        if self.take('W').is_some() {
            let week = self.number(2, 2)?;
            let _ = self.take('-');
            self.parts.iso = (Some(year), Some(week), self.number(1, 1));
            return Some(());
        }
        self.parts.year = Some(year);
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if digits == 3 {
            self.parts.day_of_year = self.number(3, 3);
            return Some(());
        }
        if !dash {
            return None;
        }
        self.parts.month = Some(self.number(1, 2)?);
        if self.take('-').is_some() || self.take('/').is_some() {
            self.parts.day = Some(self.number(1, 2)?);
        } else {
            // A month alone means its first day.
            self.parts.day = Some(1);
        }
        Some(())
    }

    /// Parses the name of a month; reads nothing if there is none.
    fn month_word(&mut self) -> Option<i64> {
        let from = self.at;
        let month = self.word().and_then(month_named);
        if month.is_none() {
            self.at = from;
        }
        month
    }

    /// Parses `[Tue] July 4[th], 2017`.
    fn worded_day(&mut self) -> Option<()> {
        const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let from = self.at;
        let word = self.word()?;
        let is_day = word.len() >= 3
            && DAYS.iter().any(|day| word.to_ascii_lowercase().starts_with(day))
            && abbreviated_month(word).is_none();
        if is_day {
            let lower = word.to_ascii_lowercase();
            let at = DAYS.iter().position(|day| lower.starts_with(day)).unwrap_or(0);
            self.parts.weekday = Some((at as i64 + 1) % 7);
            self.separator();
            return self.day();
        }
        let Some(month) = month_named(word) else {
            self.at = from;
            return None;
        };
        self.parts.month = Some(month);
        let comma = self.rest().starts_with(',');
        self.separator();
        if self.rest().bytes().take_while(u8::is_ascii_digit).count() == 4 && !comma {
            (self.parts.year, self.parts.day) = (Some(self.number(4, 4)?), Some(1));
            return Some(());
        }
        self.parts.day = Some(self.number(1, 2)?);
        for suffix in ["st", "nd", "rd", "th"] {
            if self.rest().starts_with(suffix) {
                self.at += 2;
                break;
            }
        }
        self.separator();
        if self.is_clock() {
            self.clock(true)?;
            self.blanks();
        }
        self.parts.year = Some(self.number(4, 4)?);
        Some(())
    }

    /// Parses `12:10[:40[.787]]` or `121040`; if `halves` are allowed, with `am` or `pm`, which do
    /// not go with a fraction and with the hours 0 and 13 to 24.
    fn clock(&mut self, halves: bool) -> Option<()> {
        let (mut time, mut fraction) = ([0; 4], false);
        time[0] = self.number(1, 2)?;
        let colon = self.take(':').is_some();
        if colon || self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            time[1] = self.number(2, 2)?;
            let more = self.rest().starts_with(|c: char| c.is_ascii_digit());
            if if colon { self.take(':').is_some() } else { more } {
                time[2] = self.number(2, 2)?;
                if self.take('.').is_some() || self.take(',').is_some() {
                    time[3] = self.fraction(usize::MAX)?;
                    fraction = true;
                }
            }
        }
        self.blanks();
        if halves && (1..=12).contains(&time[0]) && !fraction {
            time[0] = self.half_of_day(time[0]);
        }
        self.parts.time = Some(time);
        Some(())
    }

    /// Parses `am` or `pm`, with points or without, and returns the hour of the day.
    fn half_of_day(&mut self, hour: i64) -> i64 {
        for (name, from) in [("am", 0), ("a.m.", 0), ("pm", 12), ("p.m.", 12)] {
            let there = self.rest().get(..name.len());
            if there.is_some_and(|word| word.eq_ignore_ascii_case(name)) {
                self.at += name.len();
                return hour % 12 + from;
            }
        }
        hour
    }
}

//! Time zones: UTC, fixed offsets (`+01:00`, `-0330`, `+05`), and names of the Olson database.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use mayfly_base::Result;

use super::super::operand::fault;
use super::civil::Civil;

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// Milliseconds east of UTC.
    Fixed(i64),
    /// A zone of the Olson database.
    Named(TimeZone),
}

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

impl Zone {
    /// The zone UTC.
    pub(crate) const UTC: Zone = Zone::Fixed(0);

    /// The zone with this identifier.
    ///
    /// # Errors
    /// 40485 for an unknown identifier.
    pub(crate) fn named(name: &str) -> Result<Zone> {
        if matches!(name, "UTC" | "GMT") {
            return Ok(Zone::UTC);
        }
        if let Some(offset) = fixed_offset(name) {
            return Ok(Zone::Fixed(offset));
        }
        match DATABASE.get(name) {
            // The names are case-sensitive; the database is not.
            Ok(zone) if zone.iana_name() == Some(name) => Ok(Zone::Named(zone)),
            _ => Err(fault(40485, format!("unrecognized time zone identifier: \"{name}\""))),
        }
    }

    /// Whether it is UTC.
    pub(crate) fn is_utc(&self) -> bool {
        matches!(self, Zone::Fixed(0))
    }

    /// Milliseconds east of UTC at a moment. Outside the supported years, the rules of the nearest
    /// year apply.
    pub(crate) fn offset_ms(&self, utc_ms: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                let limits = Timestamp::MIN.as_millisecond()..=Timestamp::MAX.as_millisecond();
                let clamped = utc_ms.clamp(*limits.start() + 1, *limits.end() - 1);
                let moment = Timestamp::from_millisecond(clamped).unwrap_or(Timestamp::UNIX_EPOCH);
                i64::from(zone.to_offset(moment).seconds()) * 1000
            }
        }
    }

    /// The local time of a moment, in milliseconds.
    pub(crate) fn local_ms(&self, utc_ms: i64) -> i64 {
        utc_ms.saturating_add(self.offset_ms(utc_ms))
    }

    /// The local components of a moment.
    pub(crate) fn civil(&self, utc_ms: i64) -> Civil {
        Civil::of(self.local_ms(utc_ms))
    }

    /// The moment of a local time; `None` on overflow. An ambiguous local time means its first
    /// occurrence; one skipped by a clock change is shifted forward by the length of the gap.
    pub(crate) fn utc_ms(&self, local_ms: i64) -> Option<i64> {
        let offset = match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                let civil = Civil::of(local_ms);
                let small = |part: i64| i8::try_from(part).unwrap_or(0);
                let plain = i16::try_from(civil.year).ok().and_then(|year| {
                    DateTime::new(
                        year,
                        small(civil.month),
                        small(civil.day),
                        small(civil.hour),
                        small(civil.minute),
                        small(civil.second),
                        0,
                    )
                    .ok()
                });
                let moment = plain
                    .and_then(|plain| zone.to_ambiguous_timestamp(plain).compatible().ok())
                    .map(Timestamp::as_second);
                match moment {
                    Some(seconds) => local_ms - civil.millisecond - seconds.checked_mul(1000)?,
                    None => self.offset_ms(local_ms),
                }
            }
        };
        local_ms.checked_sub(offset)
    }
}

/// Abbreviations of time zones, in any case, with their hours east of UTC.
const ABBREVIATIONS: &[(&str, f64)] = &[
    ("utc", 0.0),
    ("gmt", 0.0),
    ("wet", 0.0),
    ("ist", 2.0),
    ("ndt", -9052.0 / 3600.0),
    ("west", 1.0),
    ("bst", 1.0),
    ("cet", 1.0),
    ("cest", 2.0),
    ("eet", 2.0),
    ("eest", 3.0),
    ("sast", 2.0),
    ("msk", 3.0),
    ("awst", 8.0),
    ("jst", 9.0),
    ("acst", 9.5),
    ("acdt", 10.5),
    ("aest", 10.0),
    ("aedt", 11.0),
    ("nzst", 12.0),
    ("nzdt", 13.0),
    ("ast", -4.0),
    ("adt", -3.0),
    ("est", -5.0),
    ("edt", -4.0),
    ("cst", -6.0),
    ("cdt", -5.0),
    ("mst", -7.0),
    ("mdt", -6.0),
    ("pst", -8.0),
    ("pdt", -7.0),
    ("akst", -9.0),
    ("akdt", -8.0),
    ("hst", -10.0),
];

/// The offset of an abbreviated time zone, in milliseconds; military zones have one letter.
pub(crate) fn abbreviated(name: &str) -> Option<i64> {
    let hours = match name.to_ascii_lowercase().as_bytes() {
        [b'z'] => 0.0,
        [letter @ b'a'..=b'i'] => f64::from(letter - b'a') + 1.0,
        [letter @ b'k'..=b'm'] => f64::from(letter - b'k') + 10.0,
        [letter @ b'n'..=b'y'] => -f64::from(letter - b'n') - 1.0,
        name => ABBREVIATIONS.iter().find(|(abbreviation, _)| abbreviation.as_bytes() == name)?.1,
    };
    Some((hours * 3_600_000.0).round() as i64)
}

/// Parses `+hh`, `+hhmm`, `+hh:mm`.
pub(crate) fn fixed_offset(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let sign = match bytes.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: Vec<i64> = match (bytes.len(), bytes.get(3)) {
        (3 | 5, _) => bytes[1..].to_vec(),
        (6, Some(b':')) => [&bytes[1..3], &bytes[4..6]].concat(),
        _ => return None,
    }
    .into_iter()
    .map(|byte| byte.is_ascii_digit().then(|| i64::from(byte - b'0')))
    .collect::<Option<_>>()?;
    let hours = digits[0] * 10 + digits[1];
    let minutes = digits.get(2..4).map_or(0, |minutes| minutes[0] * 10 + minutes[1]);
    Some(sign * (hours * 60 + minutes) * 60_000)
}

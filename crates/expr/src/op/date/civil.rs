//! The proleptic Gregorian calendar over all dates representable in 64 bits of milliseconds.

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// The components of a local date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) millisecond: i64,
}

impl Civil {
    /// The components of local milliseconds.
    pub(crate) fn of(local_ms: i64) -> Civil {
        let (days, rest) = (local_ms.div_euclid(DAY_MS), local_ms.rem_euclid(DAY_MS));
        let (year, month, day) = date_of(days);
        Civil {
            year,
            month,
            day,
            hour: rest / 3_600_000,
            minute: rest / 60_000 % 60,
            second: rest / 1000 % 60,
            millisecond: rest % 1000,
        }
    }

    /// Days since 1970-01-01.
    pub(crate) fn days(&self) -> i64 {
        days_of(self.year, self.month, self.day)
    }

    /// Local milliseconds; `None` on overflow. Components may exceed their ranges.
    pub(crate) fn local_ms(&self) -> Option<i64> {
        let months = self.year.checked_mul(12)?.checked_add(self.month.checked_sub(1)?)?;
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        if year.abs() > 400_000_000 {
            return None;
        }
        let days = i128::from(days_of(year, month, 1)) + i128::from(self.day) - 1;
        let seconds = (i128::from(self.hour) * 60 + i128::from(self.minute)) * 60;
        let seconds = seconds + i128::from(self.second);
        // Computed with more bits, because at the limits the start of the day overflows although
        // the result does not.
        let ms = days * i128::from(DAY_MS) + seconds * 1000 + i128::from(self.millisecond);
        i64::try_from(ms).ok()
    }

    /// The day of the year, from 1.
    pub(crate) fn day_of_year(&self) -> i64 {
        self.days() - days_of(self.year, 1, 1) + 1
    }

    /// The day of the week; 0 is Sunday.
    pub(crate) fn weekday(&self) -> i64 {
        weekday(self.days())
    }

    /// The week of the year, beginning on Sunday; days before the first Sunday are in week 0.
    pub(crate) fn week(&self) -> i64 {
        (self.day_of_year() + 6 - self.weekday()) / 7
    }

    /// The ISO day of the week; 1 is Monday, 7 is Sunday.
    pub(crate) fn iso_weekday(&self) -> i64 {
        (self.weekday() + 6) % 7 + 1
    }

    /// The ISO year and week: a week belongs to the year of its Thursday.
    pub(crate) fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days() - self.iso_weekday() + 4;
        let (year, _, _) = date_of(thursday);
        (year, (thursday - days_of(year, 1, 1)) / 7 + 1)
    }
}

/// The day of the week; 0 is Sunday.
pub(crate) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// Days since 1970-01-01. Years are counted from March, so that the leap day is the last day of a
/// year.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub(crate) fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let year = year_of_era + era * 400 + i64::from(month >= 10);
    (year, (month + 2) % 12 + 1, day_of_year - (153 * month + 2) / 5 + 1)
}

/// The number of days of a month.
pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree() {
        assert_eq!(days_of(1970, 1, 1), 0);
        assert_eq!(days_of(2000, 3, 1), 11_017);
        for days in (-1_000_000..1_000_000).step_by(37) {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
            assert!((1..=days_in_month(year, month)).contains(&day), "{year}-{month}-{day}");
        }
    }

    /// ISO 8601: 2016-01-02 is in week 53 of 2015, 2018-12-31 in week 1 of 2019.
    #[test]
    fn weeks() {
        let at = |year, month, day| Civil::of(days_of(year, month, day) * DAY_MS);
        assert_eq!(at(2016, 1, 2).iso_week(), (2015, 53));
        assert_eq!(at(2018, 12, 31).iso_week(), (2019, 1));
        assert_eq!(at(2017, 1, 1).week(), 1);
        assert_eq!(at(2016, 1, 1).week(), 0);
        assert_eq!(at(2017, 1, 1).iso_weekday(), 7);
    }
}

//! Environment variables that select or repeat tests.
//!
//! A value that cannot be used fails the test. If it were ignored, a run with a mistyped name would
//! pass without running anything.

/// The number in a variable, or nothing when it is not set.
///
/// # Panics
/// The value is not a number.
pub fn number(variable: &str) -> Option<u64> {
    let value = text(variable)?;
    match value.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable}={value}: not a number"),
    }
}

/// The rows whose name contains the value of a variable; all rows when it is not set.
///
/// # Panics
/// No name contains it.
pub fn selected<T>(variable: &str, rows: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
    match text(variable) {
        Some(part) => matching(variable, &part, rows, name),
        None => rows,
    }
}

/// The value of a variable, or nothing when it is not set.
pub fn text(variable: &str) -> Option<String> {
    let value = std::env::var_os(variable)?;
    Some(value.to_string_lossy().into_owned())
}

fn matching<T>(
    variable: &str,
    part: &str,
    mut rows: Vec<T>,
    name: impl Fn(&T) -> String,
) -> Vec<T> {
    rows.retain(|row| name(row).contains(part));
    assert!(!rows.is_empty(), "{variable}={part}: no name contains it");
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_selects() {
        let found = matching("PART", "b", vec!["ab", "cd", "bc"], ToString::to_string);
        assert_eq!(found, ["ab", "bc"]);
    }

    #[test]
    #[should_panic(expected = "PART=x: no name contains it")]
    fn a_part_of_no_name_fails() {
        matching("PART", "x", vec!["ab", "cd"], ToString::to_string);
    }
}

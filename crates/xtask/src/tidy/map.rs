//! Parses ARCHITECTURE.md: which crate may use which, and the floors of crates.
//!
//! The page is the only source of these rules. A table that cannot be parsed is a problem, so that
//! a change of the page's format does not disable a check.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// The parsed rules.
#[derive(Debug)]
pub(super) struct Map {
    crates: BTreeMap<String, Crate>,
    floors: Vec<(String, Vec<String>)>,
}

#[derive(Debug)]
struct Crate {
    /// Unset for crates of development.
    level: Option<u32>,
    uses: Uses,
}

#[derive(Debug)]
enum Uses {
    All,
    /// A crate and all crates on lower levels than its user.
    Below(String),
    These(Vec<String>),
}

impl Map {
    /// Parses the page.
    pub(super) fn parse(page: &str) -> Result<Map> {
        let mut crates = BTreeMap::new();
        for row in rows(page, "## Crates")? {
            let [level, names, _, uses] = row[..] else { bail!("a row of crates: {row:?}") };
            let level = match level {
                "dev" => None,
                number => Some(number.parse().with_context(|| format!("level '{number}'"))?),
            };
            for name in code(names) {
                crates.insert(name, Crate { level, uses: Uses::parse(uses) });
            }
        }
        let map = Map { crates, floors: floors(page)? };
        map.check()?;
        Ok(map)
    }

    /// Checks that every named crate has a row, on a lower level than its user.
    fn check(&self) -> Result<()> {
        for (name, entry) in &self.crates {
            let Some(level) = entry.level else { continue };
            let used = match &entry.uses {
                Uses::All => continue,
                Uses::Below(used) => std::slice::from_ref(used),
                Uses::These(used) => used,
            };
            for used in used {
                let of_used = self.crates.get(used);
                let of_used = of_used
                    .with_context(|| format!("'{name}' may use '{used}', which has no row"))?;
                let is_below = of_used.level.is_some_and(|of_used| of_used < level);
                ensure!(is_below, "'{name}' may use '{used}', which is not on a lower level");
            }
        }
        Ok(())
    }

    /// Whether a crate has a row.
    pub(super) fn has(&self, name: &str) -> bool {
        self.crates.contains_key(name)
    }

    /// The crates that have rows.
    pub(super) fn crates(&self) -> impl Iterator<Item = &str> {
        self.crates.keys().map(String::as_str)
    }

    /// Whether a crate may use another one.
    pub(super) fn allows(&self, user: &str, used: &str) -> bool {
        let (Some(user), Some(entry)) = (self.crates.get(user), self.crates.get(used)) else {
            return false;
        };
        match &user.uses {
            Uses::All => true,
            Uses::Below(top) => {
                top == used || entry.level.is_some_and(|level| Some(level) < user.level)
            }
            Uses::These(names) => names.iter().any(|name| name == used),
        }
    }

    /// The crates that have floors, each with its floors from the lowest one.
    pub(super) fn floors(&self) -> &[(String, Vec<String>)] {
        &self.floors
    }
}

impl Uses {
    fn parse(text: &str) -> Uses {
        if text == "all" {
            return Uses::All;
        }
        if let Some(top) = text.strip_suffix(" and below") {
            return Uses::Below(top.to_owned());
        }
        let names = text.split(',').map(str::trim).filter(|name| *name != "-");
        Uses::These(names.map(str::to_owned).collect())
    }
}

fn floors(page: &str) -> Result<Vec<(String, Vec<String>)>> {
    let floors = |row: Vec<&str>| {
        let [of_crate, floors] = row[..] else { bail!("a row of floors: {row:?}") };
        let name = code(of_crate).pop().with_context(|| format!("a row of floors: {row:?}"))?;
        let floors = code(floors);
        ensure!(!floors.is_empty(), "'{name}' has no floors");
        Ok((name, floors))
    };
    rows(page, "## Floors")?.into_iter().map(floors).collect()
}

/// The cells of the first table under a heading, without its head.
fn rows<'p>(page: &'p str, heading: &str) -> Result<Vec<Vec<&'p str>>> {
    let mut lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let is_row = |line: &&str| line.starts_with('|');
    let in_section = lines.by_ref().take_while(|line| !line.starts_with('#'));
    let table = in_section.skip_while(|line| !is_row(line)).take_while(is_row);
    let cells = |line: &'p str| line.trim_matches('|').split('|').map(str::trim).collect();
    let rows: Vec<Vec<&str>> = table.skip(2).map(cells).collect();
    ensure!(!rows.is_empty(), "ARCHITECTURE.md has no table under '{heading}'");
    Ok(rows)
}

/// The texts between backquotes.
fn code(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Page

## Crates

| level | crate | one sentence | may use |
|---|---|---|---|
| 0 | `base` | errors | - |
| 1 | `kv` | bytes | base |
| 1 | `runs` | files | base |
| 2 | `storage` | engine | kv, base |
| 3 | `commands` | table | storage and below |
| dev | `testkit`, `bench` | tests | all |

## Floors

Text.

| crate | floors |
|---|---|
| `storage` | `record`, `catalog` |
";

    #[test]
    fn the_page_says_what_may_be_used() {
        let map = Map::parse(PAGE).unwrap();
        assert!(map.allows("storage", "kv") && !map.allows("storage", "runs"));
        assert!(map.allows("commands", "runs") && map.allows("commands", "storage"));
        assert!(!map.allows("storage", "commands") && !map.allows("base", "kv"));
        assert!(map.allows("bench", "commands") && !map.allows("commands", "bench"));
        assert!(map.has("testkit") && !map.has("derive") && map.crates().count() == 7);
        let [(name, floors)] = map.floors() else { panic!("{map:?}") };
        assert_eq!((name.as_str(), floors.join(" ")), ("storage", "record catalog".to_owned()));
    }

    #[test]
    fn a_page_that_cannot_be_read_is_an_error() {
        let fails = |from: &str, to: &str| {
            let page = PAGE.replace(from, to);
            assert!(Map::parse(&page).is_err(), "{page}");
        };
        fails("## Crates", "## Packages");
        fails("| kv, base |", "| kv, bees |");
        fails("| 1 | `kv` | bytes | base |", "| 1 | `kv` | bytes | runs |");
        fails("| level |", "");
        fails("`record`, `catalog`", "none");
    }
}

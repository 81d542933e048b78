//! Sections of `serverStatus` from figures.

use mayfly_value::DocBuilder;

use super::figure::{Figure, Representation, label};
use super::reading::Reading;
use super::rows::figures;

/// Figures as a tree of fields, in the order of their rows.
#[derive(Default)]
pub struct Section(Vec<(String, Node)>);

enum Node {
    Value(Representation, i64),
    Section(Section),
}

impl Section {
    /// Reads the figures of a section of `serverStatus`.
    pub fn read(reading: &Reading<'_>, name: &str) -> Section {
        let mut top = Section::default();
        let is_inside = |row: &&Figure| row.place.split('.').next() == Some(name);
        for row in figures().filter(is_inside) {
            row.read(reading, &mut |labels, value| {
                let mut labels = labels.iter();
                let steps = row.place.split('.').map(|step| match label(step) {
                    Some(_) => labels.next().copied().unwrap_or_default(),
                    None => step,
                });
                top.put(&steps.collect::<Vec<_>>(), row.shown, value);
            });
        }
        match top.0.pop() {
            Some((_, Node::Section(section))) => section,
            Some((name, value)) => Section(vec![(name, value)]),
            None => Section::default(),
        }
    }

    fn put(&mut self, steps: &[&str], shown: Representation, value: i64) {
        let Some((name, rest)) = steps.split_first() else { return };
        if rest.is_empty() {
            self.0.push(((*name).to_owned(), Node::Value(shown, value)));
            return;
        }
        let at = self.0.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.0.push(((*name).to_owned(), Node::Section(Section::default())));
            self.0.len() - 1
        });
        if let Node::Section(section) = &mut self.0[at].1 {
            section.put(rest, shown, value);
        }
    }

    /// Removes a field and appends it to the document; does nothing if it is missing.
    pub fn append(&mut self, name: &str, doc: &mut DocBuilder) {
        if let Some(at) = self.0.iter().position(|(known, _)| known == name) {
            let (name, node) = self.0.remove(at);
            node.append(&name, doc);
        }
    }

    /// Appends the remaining fields.
    pub fn append_rest(&self, doc: &mut DocBuilder) {
        self.0.iter().for_each(|(name, node)| node.append(name, doc));
    }
}

impl Node {
    fn append(&self, name: &str, doc: &mut DocBuilder) {
        match self {
            Node::Value(shown, value) => append_value(name, *shown, *value, doc),
            Node::Section(section) => {
                doc.start_document(name);
                section.append_rest(doc);
                doc.end();
            }
        }
    }
}

fn append_value(name: &str, shown: Representation, value: i64, doc: &mut DocBuilder) {
    let int = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
    match shown {
        Representation::Long => doc.append(name, value),
        Representation::Int => doc.append(name, int(value)),
        Representation::Bool => doc.append(name, value != 0),
        Representation::Thousandth => doc.append(name, value / 1000),
        Representation::WholeSeconds => doc.append(name, (value / 1000) as f64),
        Representation::Hours => doc.append(name, value as f64 / 3_600_000.0),
        Representation::Mebibytes => doc.append(name, int(value >> 20)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_value::bson::doc;

    #[test]
    fn places_that_begin_alike_are_one_document() {
        let mut section = Section::default();
        section.put(&["sort", "spills"], Representation::Long, 1);
        section.put(&["group", "spills"], Representation::Long, 2);
        section.put(&["sort", "bytes"], Representation::Int, i64::MAX);
        section.put(&["full"], Representation::Bool, 1);
        let mut out = DocBuilder::new();
        section.append("full", &mut out);
        section.append("nothing", &mut out);
        section.append_rest(&mut out);
        let sort = doc! { "spills": 1_i64, "bytes": i32::MAX };
        let expected = doc! { "full": true, "sort": sort, "group": { "spills": 2_i64 } };
        assert_eq!(out.finish().as_bytes(), expected.to_vec().unwrap());
    }
}

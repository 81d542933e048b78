//! Evaluation of projections over raw documents.

use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{FEW_EXPRESSIONS, Frame};
use mayfly_value::{DocBuilder, Finder, RawDoc, RawElement, RawValue, check_size};

use super::{Branch, Level, Mode, Projection};
use crate::Matcher;

/// Writes the projected document; returns true when its nesting must be checked.
pub(super) fn apply(
    projection: &Projection,
    frame: Frame<'_>,
    filter: Option<&Matcher>,
    out: &mut DocBuilder,
) -> Result<bool> {
    let doc = frame.root();
    let finder = (projection.made > FEW_EXPRESSIONS).then(|| Finder::new(doc));
    let frame = frame.finding_by(finder.as_ref());
    let mut run = ProjectionRun {
        mode: projection.mode,
        frame,
        filter,
        in_found_item: false,
        in_inner_array: false,
        adds_levels: false,
    };
    for element in doc.iter() {
        if element.name_bytes() == b"_id" && projection.root.find(b"_id").is_none() {
            if projection.keeps_id {
                out.append_element(element);
            }
            continue;
        }
        run.element(&projection.root, element, out, 0)?;
    }
    run.made(&projection.root, doc, out)?;
    Ok(run.adds_levels)
}

/// The state of projecting one document.
struct ProjectionRun<'a> {
    mode: Mode,
    frame: Frame<'a>,
    filter: Option<&'a Matcher>,
    /// The positional operator was applied to an enclosing array.
    in_found_item: bool,
    /// An enclosing array is an item of another one: `$slice` does not look into it.
    in_inner_array: bool,
    /// A computed value may add levels, so the result may be nested deeper than the document.
    adds_levels: bool,
}

impl<'a> ProjectionRun<'a> {
    fn element(
        &mut self,
        level: &Level,
        element: RawElement<'a>,
        out: &mut DocBuilder,
        depth: usize,
    ) -> Result<()> {
        match (self.mode, level.find(element.name_bytes())) {
            (Mode::Include, Some(Branch::Leaf)) | (Mode::Exclude, None) => {
                out.append_element(element);
            }
            (Mode::Include, None | Some(Branch::Expression(_) | Branch::ElemMatch(_)))
            | (Mode::Exclude, Some(Branch::Leaf)) => {}
            // In an exclusion computed fields stay at their position.
            (Mode::Exclude, Some(branch @ (Branch::Expression(_) | Branch::ElemMatch(_)))) => {
                self.make(branch, element.name(), Some(element.value()), out)?;
            }
            (_, Some(Branch::Slice(slice))) => match element.value() {
                RawValue::Array(items) if !self.in_inner_array => {
                    slice.append(element.name(), items, out)
                }
                _ => {
                    out.append_element(element);
                }
            },
            (_, Some(Branch::Positional)) => match element.value() {
                RawValue::Array(items) if !self.in_found_item => {
                    let item = items.iter().nth(self.position()?).ok_or_else(mismatch)?;
                    out.start_array(element.name()).push(item.value()).end();
                }
                _ => {
                    out.append_element(element);
                }
            },
            (_, Some(Branch::Level(inner))) => return self.inside(inner, element, out, depth),
        }
        Ok(())
    }

    /// Projects a field with a subtree.
    fn inside(
        &mut self,
        inner: &Level,
        element: RawElement<'a>,
        out: &mut DocBuilder,
        depth: usize,
    ) -> Result<()> {
        match element.value() {
            RawValue::Document(doc) => {
                out.start_document(element.name());
                self.fields(inner, doc, out, depth + 1)?;
                out.end();
            }
            RawValue::Array(items) => {
                out.start_array(element.name());
                if inner.positional && !self.in_found_item {
                    self.found_item(inner, items, out, depth + 1)?;
                } else {
                    self.items(inner, items, out, depth + 1)?;
                }
                out.end();
            }
            _ if inner.makes => {
                out.start_document(element.name());
                self.made(inner, RawDoc::EMPTY, out)?;
                out.end();
            }
            _ if self.mode == Mode::Exclude => {
                out.append_element(element);
            }
            _ => {}
        }
        Ok(())
    }

    fn fields(
        &mut self,
        level: &Level,
        doc: RawDoc<'a>,
        out: &mut DocBuilder,
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_BSON_DEPTH {
            return Ok(());
        }
        doc.iter().try_for_each(|element| self.element(level, element, out, depth))?;
        self.made(level, doc, out)
    }

    /// Projects the documents of an array. Other items are kept in an exclusion and dropped in an
    /// inclusion, unless they are replaced by a document with computed fields.
    fn items(
        &mut self,
        level: &Level,
        items: RawDoc<'a>,
        out: &mut DocBuilder,
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_BSON_DEPTH {
            return Ok(());
        }
        items.iter().try_for_each(|item| self.item(level, item.value(), out, depth))
    }

    fn item(
        &mut self,
        level: &Level,
        item: RawValue<'a>,
        out: &mut DocBuilder,
        depth: usize,
    ) -> Result<()> {
        match item {
            RawValue::Document(doc) => {
                out.push_document();
                self.fields(level, doc, out, depth + 1)?;
                out.end();
            }
            RawValue::Array(inner) => {
                let before = std::mem::replace(&mut self.in_inner_array, true);
                out.push_array();
                self.items(level, inner, out, depth + 1)?;
                out.end();
                self.in_inner_array = before;
            }
            _ if level.makes => {
                out.push_document();
                self.made(level, RawDoc::EMPTY, out)?;
                out.end();
            }
            value if self.mode == Mode::Exclude => {
                out.push(value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps one item of an array on the path of the positional operator: its index counts the
    /// items that the inclusion keeps.
    fn found_item(
        &mut self,
        level: &Level,
        items: RawDoc<'a>,
        out: &mut DocBuilder,
        depth: usize,
    ) -> Result<()> {
        let position = self.position()?;
        let stays = |item: &RawValue<'_>| {
            level.makes || matches!(item, RawValue::Document(_) | RawValue::Array(_))
        };
        let mut left = items.iter().map(|item| item.value()).filter(stays);
        let item = left.nth(position).ok_or_else(mismatch)?;
        self.in_found_item = true;
        self.item(level, item, out, depth)?;
        self.in_found_item = false;
        Ok(())
    }

    fn position(&self) -> Result<usize> {
        let found = match self.filter {
            Some(filter) => filter.array_position(self.frame.root())?,
            None => None,
        };
        found.ok_or_else(|| {
            let text = "positional operator '.$' couldn't find a matching element in the array";
            Error::new(ErrorCode(51246), text)
        })
    }

    /// Appends the computed fields of a level; `doc` is the document at that level.
    fn made(&mut self, level: &Level, doc: RawDoc<'a>, out: &mut DocBuilder) -> Result<()> {
        if !level.makes {
            return Ok(());
        }
        for (name, branch) in level.fields.as_slice() {
            match branch {
                Branch::Expression(_) | Branch::ElemMatch(_) => {
                    let present = self.frame.get(doc, name);
                    if self.mode == Mode::Include || present.is_none() {
                        self.make(branch, name, present, out)?;
                    }
                }
                Branch::Level(inner) if inner.makes && self.frame.get(doc, name).is_none() => {
                    out.start_document(name);
                    self.made(inner, RawDoc::EMPTY, out)?;
                    out.end();
                }
                Branch::Leaf | Branch::Level(_) | Branch::Slice(_) | Branch::Positional => {}
            }
        }
        Ok(())
    }

    fn make(
        &mut self,
        branch: &Branch,
        name: &str,
        present: Option<RawValue<'a>>,
        out: &mut DocBuilder,
    ) -> Result<()> {
        match branch {
            Branch::Expression(expression) => {
                if let Some(value) = expression.evaluate(self.frame)?.as_raw() {
                    out.append(name, value);
                    check_size(out.len())?;
                    self.adds_levels |= matches!(value, RawValue::Document(_) | RawValue::Array(_));
                }
            }
            Branch::ElemMatch(condition) => {
                let found = present.map(|value| condition.first(value)).transpose()?;
                if let Some(item) = found.flatten() {
                    out.start_array(name).push(item).end();
                }
            }
            Branch::Leaf | Branch::Level(_) | Branch::Slice(_) | Branch::Positional => {}
        }
        Ok(())
    }
}

fn mismatch() -> Error {
    Error::new(ErrorCode(51247), "positional operator '.$' element mismatch")
}

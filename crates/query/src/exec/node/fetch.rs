//! `FETCH`: reads the documents of records a page at a time, and applies the filter.

use std::ops::ControlFlow;

use mayfly_base::Result;

use super::key_list::KeyCollector;
use super::page::{Page, Shown};
use super::{Batch, Counters, Node, Nothing, Progress, Row, Rows};
use crate::language::metadata::Metadata;

pub(super) struct Fetch {
    input: Box<dyn Node>,
    /// Keys whose records are to be read.
    page: Option<Page>,
    /// Whether the input is exhausted.
    input_over: bool,
    /// Whether the input returns only keys.
    keys_only: bool,
    /// Whether every entry that the input returns is of a result, as long as it determines the
    /// values of its document.
    is_exact: bool,
    counters: Counters,
}

impl Fetch {
    /// A fetch over an input that may return keys or documents.
    pub(super) fn new(input: Box<dyn Node>) -> Fetch {
        let counters = Counters::default();
        let (keys_only, is_exact) = (false, false);
        Fetch { input, page: None, input_over: false, keys_only, is_exact, counters }
    }

    /// A fetch over an input that returns only keys.
    pub(super) fn of_keys(input: Box<dyn Node>) -> Fetch {
        Fetch { keys_only: true, ..Fetch::new(input) }
    }

    /// A fetch over an input that returns only keys, of results as far as it knows their values.
    pub(super) fn of_results(input: Box<dyn Node>) -> Fetch {
        Fetch { is_exact: true, ..Fetch::of_keys(input) }
    }
}

/// Passes on the documents of a page. Returns the index of the last one if the consumer stopped
/// there.
fn show(
    batch: &Batch<'_>,
    page: &mut Page,
    counters: &mut Counters,
    rows: &mut Rows<'_>,
) -> Result<Option<usize>> {
    page.show(batch, &mut |Shown { record, document, matches, .. }| {
        counters.documents += 1;
        if !matches && !batch.matches(document)? {
            return Ok(None);
        }
        counters.returned += 1;
        rows(&Row::read(record, document, &Metadata::NONE)).map(Some)
    })
}

impl Node for Fetch {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let page = self.page.get_or_insert_with(|| Page::new(batch.collection));
        let (counters, is_exact) = (&mut self.counters, self.is_exact);
        page.begin(batch);
        let (waiting, keys) = page.waiting();
        batch.count(keys, 0);
        counters.examined += waiting;
        let mut last = show(batch, page, counters, rows)?;
        let mut stopped = last.is_some();
        if !stopped && !self.input_over {
            let progress = self.input.run(batch, &mut |row| {
                counters.examined += 1;
                let full = match row.document {
                    None => {
                        let full = page.push(row);
                        if is_exact && row.entry.is_some() {
                            page.note_match();
                        }
                        full
                    }
                    Some(_) => true,
                };
                if full {
                    last = show(batch, page, counters, rows)?;
                }
                match row.document {
                    Some(_) if last.is_some() => {
                        page.push(&Row { place: None, ..*row });
                    }
                    Some(_) => {
                        counters.returned += 1;
                        stopped = rows(row)?.is_break();
                    }
                    None => {}
                }
                stopped |= last.is_some();
                Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            self.input_over = progress == Progress::Over;
            if !stopped {
                last = show(batch, page, counters, rows)?;
                stopped = last.is_some();
            }
        }
        if let Some(last) = last {
            let before = counters.examined;
            counters.examined -= page.rows_after(last);
            if page.leave(batch, last, &mut *self.input) {
                self.input_over &= counters.examined == before;
            }
        }
        counters.over = self.input_over && page.is_empty() && !stopped;
        Ok(if counters.over { Progress::Over } else { Progress::Stopped })
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn each_input(&self, see: &mut dyn FnMut(&dyn Node)) {
        see(&*self.input);
    }

    fn collect_keys(&mut self, batch: &Batch<'_>) -> Result<()> {
        if self.input_over || !self.keys_only {
            return Ok(());
        }
        let mut keys = KeyCollector::new(batch);
        while self.input.run(batch, &mut |row| {
            keys.push(row.record)?;
            Ok(ControlFlow::Continue(()))
        })? == Progress::Stopped
        {}
        let scan = std::mem::replace(&mut self.input, Box::new(Nothing));
        self.input = Box::new(keys.finish(scan, batch)?);
        // The list is complete and must not be collected again.
        self.keys_only = false;
        Ok(())
    }
}

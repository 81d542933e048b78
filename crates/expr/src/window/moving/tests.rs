//! Work of moving windows, and results at the places where a state is rebuilt.

use std::cell::Cell;

use mayfly_value::extjson::parse_document;

use super::super::bounds::reaches;
use super::*;
use crate::{Order, Scope};

thread_local! {
    /// Items and summaries that were added to a summary.
    static ADDED: Cell<usize> = const { Cell::new(0) };
}

/// The first and the last item of a sequence of ascending integers without gaps.
#[derive(Clone, Debug, Default, PartialEq)]
struct Ends(Option<(u64, u64)>);

impl Ends {
    fn extend(&mut self, (first, last): (u64, u64)) {
        ADDED.with(|added| added.set(added.get() + 1));
        self.0 = Some(match self.0 {
            None => (first, last),
            Some((start, end)) => {
                assert_eq!(end + 1, first, "out of order");
                (start, last)
            }
        });
    }
}

impl Summary for Ends {
    type Item = u64;
    type Settings = ();

    fn item((): (), _: &WindowFunction, _: &DocBuf) -> Result<u64> {
        Ok(0)
    }

    fn push(&mut self, item: &u64) {
        self.extend((*item, *item));
    }

    fn append(&mut self, later: &Ends) {
        later.0.into_iter().for_each(|ends| self.extend(ends));
    }

    fn result(&self, (): (), _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        Ok(null())
    }
}

/// The summary of a window has its items in their order, for every width up to some blocks and for
/// widths that change, at a constant cost for each item.
#[test]
fn summaries_of_a_queue() {
    for width in (0..70).chain([1000, 1023, 1025]) {
        ADDED.with(|added| added.set(0));
        let mut queue = TwoStacks::<Ends>::new(());
        for item in 0..5000 {
            queue.push(item);
            if item > width {
                queue.pop();
            }
            let expected = Ends(Some((item.saturating_sub(width), item)));
            assert_eq!(queue.summary(), expected, "{width}");
        }
        let added = ADDED.with(Cell::get);
        // Two for each summary of a whole window, and at most five for an item that moves from the
        // back to the front.
        assert!(added < 8 * 5000, "{added} for {width}");
    }
    let mut queue = TwoStacks::<Ends>::new(());
    let (mut first, mut next) = (0, 0);
    for turn in 0..200_u64 {
        (0..turn * 37 % 90).for_each(|_| {
            queue.push(next);
            next += 1;
        });
        for _ in 0..(turn * 53 % 90).min(next - first) {
            queue.pop();
            first += 1;
        }
        let expected = (first < next).then(|| (first, next - 1));
        assert_eq!(queue.summary(), Ends(expected));
    }
}

/// Each document enters a window once, whatever the function and the width are.
#[test]
fn each_document_enters_a_window_once() {
    let pattern = parse_document("{t: 1}").unwrap();
    let order = Order::parse_pattern(pattern.as_doc()).unwrap();
    let documents: Vec<DocBuf> = (0..500)
        .map(|at| parse_document(&format!("{{t: {at}, v: {}}}", at * 37 % 100)).unwrap())
        .collect();
    for function in [
        "$sum: '$v'",
        "$stdDevPop: '$v'",
        "$covariancePop: ['$t', '$v']",
        "$integral: {input: '$v'}",
        "$derivative: {input: '$v'}",
        "$minMaxScaler: '$v'",
        "$max: '$v'",
        "$minN: {n: 3, input: '$v'}",
        "$bottomN: {n: 3, sortBy: {v: 1}, output: '$t'}",
        "$median: {input: '$v', method: 'approximate'}",
        "$addToSet: '$v'",
        "$push: '$v'",
        "$first: '$v'",
        "$lastN: {n: 3, input: '$v'}",
    ] {
        for window in
            ["documents: [-200, 0]", "range: [-200, 100]", "documents: ['unbounded', 'current']"]
        {
            let spec = parse_document(&format!("{{{function}, window: {{{window}}}}}")).unwrap();
            let function =
                WindowFunction::parse(spec.as_doc(), Some(&order), &Scope::default()).unwrap();
            let mut window = Window::start(&function).unwrap();
            let mut entered = 0;
            for reach in reaches(&function, &documents).unwrap() {
                let document = |at: usize| {
                    entered += 1;
                    documents.get(at)
                };
                window.move_to(&function, reach, document).unwrap();
            }
            assert_eq!(entered, documents.len(), "{spec:?}");
        }
    }
}

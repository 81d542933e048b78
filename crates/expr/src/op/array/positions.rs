//! Reading items of large arrays by their positions.
//!
//! A stored array has no index: to read an item, all items before it are skipped. The body of a
//! loop often reads many items of one array, as in
//! `{$map: {input: {$range: [..]}, in: {$arrayElemAt: ['$a', '$$this']}}}`. So each loop remembers
//! where items are. The array must exist for as long as the loop runs, because it is recognised by
//! its address.

use std::cell::RefCell;

use mayfly_value::{RawDoc, RawIter};

use crate::{Expression, Frame, Value};

/// Items before this position are always read from the start.
const FEW: usize = 32;
/// Items of arrays of fewer bytes are always counted.
const LARGE: usize = 256;
/// The position of one of this many items is remembered.
const STEP: usize = 16;
/// The most arrays of a loop that are remembered.
const MAX_ARRAYS: usize = 8;

/// Where items of arrays are that the body of a loop has read.
#[derive(Debug, Default)]
pub(crate) struct Positions(RefCell<Vec<Known>>);

/// Where every [`STEP`]th item of an array is.
#[derive(Debug)]
struct Known {
    /// The address of the array and its length in bytes.
    array: (usize, usize),
    /// Offsets from the first item in bytes, as far as the array was read.
    offsets: Vec<u32>,
    /// The number of items, once it was needed.
    count: Option<usize>,
}

impl Positions {
    /// The offset of the last remembered item at or before a position. `None` if the array is not
    /// remembered, or ends before the position.
    fn offset_before(&self, array: RawDoc<'_>, at: usize) -> Option<usize> {
        let mut arrays = self.0.borrow_mut();
        let known = known(&mut arrays, array)?;
        let step = at / STEP;
        while known.offsets.len() <= step {
            let last = *known.offsets.last()?;
            let mut items = array.iter_from(last as usize);
            let before = items.rest().len();
            items.by_ref().nth(STEP - 1)?;
            known.offsets.push(last + u32::try_from(before - items.rest().len()).ok()?);
        }
        Some(known.offsets[step] as usize)
    }

    /// The number of items; `None` if the array is not remembered.
    fn count(&self, array: RawDoc<'_>) -> Option<usize> {
        let mut arrays = self.0.borrow_mut();
        let known = known(&mut arrays, array)?;
        Some(*known.count.get_or_insert_with(|| array.iter().count()))
    }
}

/// What is known of an array; `None` for one that is not remembered.
fn known<'k>(arrays: &'k mut Vec<Known>, array: RawDoc<'_>) -> Option<&'k mut Known> {
    let bytes = array.as_bytes();
    let address = (bytes.as_ptr() as usize, bytes.len());
    match arrays.iter().position(|known| known.array == address) {
        Some(known) => arrays.get_mut(known),
        None if arrays.len() < MAX_ARRAYS => {
            arrays.push(Known { array: address, offsets: vec![0], count: None });
            arrays.last_mut()
        }
        None => None,
    }
}

/// The number of an array's items. `source` is the expression of the array.
pub(super) fn count(
    array: &Value<'_>,
    items: RawDoc<'_>,
    (source, frame): (&Expression, Frame<'_>),
) -> usize {
    let known = match array {
        Value::Borrowed(_) if items.as_bytes().len() >= LARGE => frame.positions_of(source),
        _ => None,
    };
    let count = known.and_then(|positions| positions.count(items));
    count.unwrap_or_else(|| items.iter().count())
}

/// The items of an array from a position on. `source` is the expression of the array.
pub(super) fn items_from<'v>(
    array: &'v Value<'_>,
    items: RawDoc<'v>,
    at: usize,
    (source, frame): (&Expression, Frame<'_>),
) -> std::iter::Skip<RawIter<'v>> {
    let known = match array {
        Value::Borrowed(_) if at >= FEW => frame.positions_of(source),
        _ => None,
    };
    match known.and_then(|positions| positions.offset_before(items, at)) {
        Some(offset) => items.iter_from(offset).skip(at % STEP),
        None => items.iter().skip(at),
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::extjson::parse_document;

    use crate::{Expression, Frame};

    const ITEMS: i64 = 500;

    /// `{a: [[0], [0, 1], ...], b: ['', 'x', 'xx', ...]}`
    fn arrays() -> DocBuf {
        let numbers = (0..ITEMS).map(|n| n.to_string()).collect::<Vec<_>>();
        let nested = (1..=numbers.len()).map(|n| format!("[{}]", numbers[..n].join(", ")));
        let texts = (0..numbers.len()).map(|n| format!("'{}'", "x".repeat(n % 50)));
        let (nested, texts) = (nested.collect::<Vec<_>>(), texts.collect::<Vec<_>>());
        parse_document(&format!("{{a: [{}], b: [{}]}}", nested.join(", "), texts.join(", ")))
            .unwrap()
    }

    /// Whether the two expressions have the same value.
    fn agree(expression: &str, plain: &str) {
        let document = arrays();
        let value = |text: &str| {
            let parsed = parse_document(&format!("{{e: {text}}}")).unwrap();
            let expression = Expression::parse(parsed.as_doc().get("e").unwrap()).unwrap();
            let value = expression.evaluate(Frame::new(document.as_doc())).unwrap();
            format!("{:?}", value.or_undefined())
        };
        assert_eq!(value(expression), value(plain), "{expression}");
    }

    #[test]
    fn a_loop_over_positions_reads_each_item() {
        let all = "{$range: [0, 500]}";
        agree(
            &format!("{{$map: {{input: {all}, in: {{$arrayElemAt: ['$b', '$$this']}}}}}}"),
            "'$b'",
        );
        let back = "{$map: {input: {$range: [1, 501]}, in: {$arrayElemAt: ['$b', {$multiply: [-1, '$$this']}]}}}";
        agree(back, "{$reverseArray: '$b'}");
        let beyond = "{$map: {input: {$range: [480, 520]}, in: {$arrayElemAt: ['$b', '$$this']}}}";
        let nulls = "{$concatArrays: [{$slice: ['$b', 480, 20]}, {$map: {input: {$range: [0, 20]}, in: null}}]}";
        agree(beyond, nulls);
        let last = "{$map: {input: {$range: [1, 501]}, in: {$arrayElemAt: ['$b', {$subtract: [{$size: '$b'}, '$$this']}]}}}";
        agree(last, "{$reverseArray: '$b'}");
        let slices =
            "{$map: {input: {$range: [0, 500]}, in: {$first: {$slice: ['$b', '$$this', 2]}}}}";
        agree(slices, "'$b'");
    }

    #[test]
    fn arrays_that_change_in_the_loop_are_read_anew() {
        // The array of a variable of the loop: another one in each step.
        let last = "{$map: {input: '$a', as: 'row', in: {$arrayElemAt: ['$$row', {$subtract: [{$size: '$$row'}, 1]}]}}}";
        agree(last, "{$range: [0, 500]}");
        let bound = "{$map: {input: '$a', as: 'row', in: {$let: {vars: {r: '$$row'}, in: {$arrayElemAt: ['$$r', {$subtract: [{$size: '$$r'}, 1]}]}}}}}";
        agree(bound, "{$range: [0, 500]}");
        // The value of `$reduce`, whose memory is used again.
        let reduced = "{$reduce: {input: {$range: [0, 300]}, initialValue: {$range: [0, 100]}, in: {$concatArrays: [{$slice: ['$$value', 1, 99]}, [{$add: [{$arrayElemAt: ['$$value', 98]}, 2]}]]}}}";
        let mut rows: Vec<i64> = (0..100).collect();
        for _ in 0..300 {
            let next = rows[98] + 2;
            rows.remove(0);
            rows.push(next);
        }
        agree(reduced, &format!("{{$literal: {rows:?}}}"));
    }

    #[test]
    fn loops_in_loops_read_the_arrays_of_the_outer_ones() {
        let nested = "{$map: {input: {$range: [400, 410]}, as: 'i', in: {$let: {vars: {row: {$arrayElemAt: ['$a', '$$i']}}, in: {$sum: {$map: {input: {$range: [0, '$$i']}, as: 'j', in: {$arrayElemAt: ['$$row', '$$j']}}}}}}}}";
        let plain =
            "{$map: {input: {$range: [400, 410]}, as: 'i', in: {$sum: {$range: [0, '$$i']}}}}";
        agree(nested, plain);
        // More arrays than are remembered.
        let many = "{$map: {input: {$range: [390, 400]}, as: 'i', in: {$sum: {$map: {input: {$range: [100, 390]}, as: 'j', in: {$arrayElemAt: [{$arrayElemAt: ['$a', '$$i']}, '$$j']}}}}}}";
        agree(many, "{$map: {input: {$range: [390, 400]}, in: {$sum: {$range: [100, 390]}}}}");
        let twelve = (390..402).map(|n| format!("v{n}: {{$arrayElemAt: ['$a', {n}]}}"));
        let sums = (390..402).map(|n| format!("{{$arrayElemAt: ['$$v{n}', '$$j']}}"));
        let (twelve, sums) = (twelve.collect::<Vec<_>>(), sums.collect::<Vec<_>>());
        let (twelve, sums) = (twelve.join(", "), sums.join(", "));
        let text = format!(
            "{{$let: {{vars: {{{twelve}}}, in: {{$map: {{input: {{$range: [0, 390]}}, as: 'j', in: {{$add: [{sums}]}}}}}}}}}}"
        );
        agree(&text, "{$map: {input: {$range: [0, 390]}, in: {$multiply: ['$$this', 12]}}}");
    }
}

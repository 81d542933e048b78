//! The plane as a grid of squares, each divided into four, for the keys of `2d` indexes.
//!
//! A point's number has two bits for each division, x before y, so that the numbers of all points
//! of a square form one range.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;
use mayfly_value::shell::ShellValue;

use crate::plane::FlatShape;
use crate::point::Pair;

/// Most squares of a covering.
const MAX_SQUARES: usize = 48;

/// A grid over a square part of the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Number of divisions: 1 to 32.
    pub bits: u32,
    /// The lower bound of both coordinates.
    pub min: f64,
    /// The upper bound of both coordinates.
    pub max: f64,
}

/// A range of numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GridRange {
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
}

impl Default for Grid {
    fn default() -> Grid {
        Grid { bits: 26, min: -180.0, max: 180.0 }
    }
}

/// A square: its level, and its column and row among those of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Square {
    pub(crate) level: u32,
    column: u64,
    row: u64,
}

impl Square {
    /// The whole grid.
    pub(crate) const ALL: Square = Square { level: 0, column: 0, row: 0 };

    /// Its four quarters.
    pub(crate) fn parts(self) -> [Square; 4] {
        [0, 1, 2, 3].map(|at| Square {
            level: self.level + 1,
            column: 2 * self.column + at / 2,
            row: 2 * self.row + at % 2,
        })
    }
}

impl Grid {
    /// The number of a point.
    ///
    /// # Errors
    /// 13027 for a point outside.
    pub fn number(&self, point: Pair) -> Result<u64> {
        let inside = |value: f64| self.min <= value && value <= self.max;
        if !inside(point.x) || !inside(point.y) {
            let shown = |value| ShellValue(RawValue::Double(value)).to_string();
            return Err(Error::new(
                ErrorCode(13027),
                format!(
                    "point not in interval of [ {}, {} ] :: caused by :: {{ 0: {}, 1: {} }}",
                    self.min,
                    self.max,
                    shown(point.x),
                    shown(point.y)
                ),
            ));
        }
        Ok(interleaved(self.place(point.x), self.place(point.y)))
    }

    /// The column or row of a coordinate; coordinates outside the grid are clamped.
    fn place(&self, value: f64) -> u64 {
        let count = 1u64 << self.bits;
        let part = (value - self.min) / (self.max - self.min);
        // Casts of negative numbers and NaN give 0.
        ((part * count as f64) as u64).min(count - 1)
    }

    /// The corners of a square, extended by the rounding error.
    pub(crate) fn corners(&self, square: Square) -> (Pair, Pair) {
        let width = (self.max - self.min) / (1u64 << square.level) as f64;
        let slack = (self.max - self.min + self.min.abs() + self.max.abs()) * 1e-14;
        let at = |place: u64| self.min + place as f64 * width;
        let low = Pair { x: at(square.column) - slack, y: at(square.row) - slack };
        let high = Pair { x: at(square.column + 1) + slack, y: at(square.row + 1) + slack };
        (low, high)
    }

    pub(crate) fn range(&self, square: Square) -> GridRange {
        let rest = 2 * (self.bits - square.level);
        let first = interleaved(square.column, square.row).checked_shl(rest).unwrap_or(0);
        let last = first | 1u64.checked_shl(rest).map_or(u64::MAX, |end| end - 1);
        GridRange { first, last }
    }

    /// Ranges with the numbers of all points in a shape, ascending.
    pub fn covering(&self, shape: &FlatShape) -> Vec<GridRange> {
        let meets = |square: &Square| {
            let (low, high) = self.corners(*square);
            shape.may_meet(low, high)
        };
        let mut done = Vec::new();
        let mut open = BinaryHeap::new();
        if meets(&Square::ALL) {
            open.push(Reverse(Square::ALL));
        }
        while let Some(Reverse(square)) = open.pop() {
            if square.level >= self.bits {
                done.push(self.range(square));
                continue;
            }
            let children: Vec<Square> = square.parts().into_iter().filter(meets).collect();
            if children.len() > 1 && done.len() + open.len() + children.len() > MAX_SQUARES {
                done.push(self.range(square));
            } else {
                open.extend(children.into_iter().map(Reverse));
            }
        }
        done.sort();
        let mut joined: Vec<GridRange> = Vec::with_capacity(done.len());
        for range in done {
            match joined.last_mut() {
                Some(last) if range.first <= last.last.saturating_add(1) => {
                    last.last = last.last.max(range.last);
                }
                _ => joined.push(range),
            }
        }
        joined
    }
}

/// Interleaves the bits of both, x before y.
fn interleaved(x: u64, y: u64) -> u64 {
    spread(x) << 1 | spread(y)
}

/// Inserts a zero before each of the lower 32 bits.
fn spread(value: u64) -> u64 {
    let mut bits = value & 0xFFFF_FFFF;
    bits = (bits | bits << 16) & 0x0000_FFFF_0000_FFFF;
    bits = (bits | bits << 8) & 0x00FF_00FF_00FF_00FF;
    bits = (bits | bits << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & 0x5555_5555_5555_5555
}

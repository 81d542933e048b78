//! `$and`, `$or`, `$not`.

use super::{ANY, OpRow, list};

pub(super) const ROWS: &[OpRow] = &[
    list("$and", "2.2", "Whether all are true.", ANY, |args, frame| {
        for argument in args {
            if !argument.evaluate(frame)?.is_true() {
                return Ok(false.into());
            }
        }
        Ok(true.into())
    }),
    list("$or", "2.2", "Whether any is true.", ANY, |args, frame| {
        for argument in args {
            if argument.evaluate(frame)?.is_true() {
                return Ok(true.into());
            }
        }
        Ok(false.into())
    }),
    list("$not", "2.2", "The logical negation.", (1, 1), |args, frame| {
        Ok((!args[0].evaluate(frame)?.is_true()).into())
    }),
];

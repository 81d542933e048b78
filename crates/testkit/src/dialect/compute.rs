//! Calculations inside `Date(...)` and `@(...)`.

use super::Env;

/// Evaluates sums, differences, products and remainders of whole numbers, `now` and `i`. Products
/// take precedence; there are no parentheses.
pub(super) fn compute(expression: &str, env: &Env) -> Result<i64, String> {
    let wrong = || format!("not a sum of whole numbers: {expression}");
    let operand = |text: &str| -> Result<i64, String> {
        match text.trim() {
            "now" => Ok(env.now_ms),
            "i" => Ok(env.row),
            number => number.parse().map_err(|_| wrong()),
        }
    };
    let product = |text: &str| -> Result<i64, String> {
        let mut result: Option<i64> = None;
        let mut rest = text;
        let mut operator = '*';
        loop {
            let at = rest.find(['*', '%']).unwrap_or(rest.len());
            let right = operand(&rest[..at])?;
            result = match (result, operator) {
                (None, _) => Some(right),
                (Some(left), '*') => left.checked_mul(right),
                (Some(left), _) => left.checked_rem(right),
            };
            if result.is_none() {
                return Err(wrong());
            }
            let Some(next) = rest[at..].chars().next() else { break };
            operator = next;
            rest = &rest[at + 1..];
        }
        result.ok_or_else(wrong)
    };
    let text = expression.trim();
    let mut sum: i64 = 0;
    let mut start = 0;
    let mut negative = false;
    for (at, c) in text.char_indices().chain([(text.len(), '+')]) {
        let is_sign = matches!(c, '+' | '-') && at > start;
        if is_sign {
            let part = product(&text[start..at])?;
            let part = if negative { part.checked_neg() } else { Some(part) };
            sum = part.and_then(|part| sum.checked_add(part)).ok_or_else(wrong)?;
            negative = c == '-';
            start = at + 1;
        }
    }
    Ok(sum)
}

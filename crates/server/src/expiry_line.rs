//! One sentence about expiry, from the reply of `ttlStatus`, for people and the service manager.

use mayfly_value::{RawDoc, RawValue};

/// What `ttlStatus` says in one sentence, such as `All 3 policies keep up.` A policy is late when
/// its oldest due document has been due for more than `patience_secs`: documents become due between
/// two passes of the monitor.
pub(crate) fn expiry_line(status: RawDoc<'_>, patience_secs: f64) -> String {
    let totals = status.get("totals").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    let is_limit = totals.get("dueIsLimit") == Some(RawValue::Bool(true));
    let due = due(whole(totals, "due"), is_limit);
    if let Some(suspended) = status.get("suspended").and_then(RawValue::as_document) {
        let reason = match text(suspended, "reason") {
            "clockJumped" => "the clock has jumped",
            "clockBehindData" => "the clock is earlier than the data",
            "restored" => "the data was restored from a backup",
            other => other,
        };
        return format!("Expiry is suspended: {reason}; {due}.");
    }
    let policies: Vec<RawDoc<'_>> = status
        .get("policies")
        .and_then(RawValue::as_array)
        .into_iter()
        .flat_map(|policies| policies.iter())
        .filter_map(|policy| policy.value().as_document())
        .collect();
    if policies.is_empty() {
        return "There are no TTL policies.".to_owned();
    }
    let late_secs = |policy: &RawDoc<'_>| number(*policy, "oldestOverdueSecs").unwrap_or(0.0);
    let mut late: Vec<RawDoc<'_>> =
        policies.iter().copied().filter(|policy| late_secs(policy) > patience_secs).collect();
    late.sort_by(|a, b| late_secs(b).total_cmp(&late_secs(a)));
    let keep_up = policies.len() - late.len();
    let Some(worst) = late.first() else {
        return match keep_up {
            1 => "The only policy keeps up.".to_owned(),
            _ => format!("All {keep_up} policies keep up."),
        };
    };
    let (namespace, index) = (text(*worst, "ns"), text(*worst, "index"));
    let of_worst =
        self::due(whole(*worst, "due"), worst.get("dueIsLimit") == Some(RawValue::Bool(true)));
    let mut line = match keep_up {
        0 => String::new(),
        1 => "1 policy keeps up; ".to_owned(),
        _ => format!("{keep_up} policies keep up; "),
    };
    line += &format!("{namespace} ({index}) is {} late, {of_worst}", span(late_secs(worst)));
    if let Some(left) = number(*worst, "etaSecs").filter(|secs| *secs > 0.0) {
        line += &format!(", done in {}", span(left));
    }
    match late.len() - 1 {
        0 => {}
        1 => line += "; another policy is late, too",
        more => line += &format!("; {more} others are late, too"),
    }
    line + "."
}

/// A time span with its greatest unit, such as `3 min`.
pub(crate) fn span(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
    }
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A field as a number; `None` for null and for other types.
pub(crate) fn number(document: RawDoc<'_>, name: &str) -> Option<f64> {
    match document.get(name)? {
        RawValue::Double(number) => Some(number),
        RawValue::Int32(number) => Some(f64::from(number)),
        RawValue::Int64(number) => Some(number as f64),
        _ => None,
    }
}

/// A field as a whole number; 0 without one.
pub(crate) fn whole(document: RawDoc<'_>, name: &str) -> i64 {
    number(document, name).unwrap_or(0.0) as i64
}

/// A field as text; empty without one.
pub(crate) fn text<'d>(document: RawDoc<'d>, name: &str) -> &'d str {
    document.get(name).and_then(RawValue::as_str).unwrap_or_default()
}

fn due(count: i64, is_limit: bool) -> String {
    let at_least = if is_limit { "at least " } else { "" };
    match count {
        1 => "1 document is due".to_owned(),
        _ => format!("{at_least}{} documents are due", grouped(count)),
    }
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, Document, doc};

    use super::*;

    fn line(status: &Document) -> String {
        expiry_line(DocBuf::from_bson(status).as_doc(), 65.0)
    }

    fn policy(ns: &str, due: i64, late: impl Into<Bson>, eta: f64) -> Document {
        doc! { "ns": ns, "index": "at_1", "due": due, "oldestOverdueSecs": late.into(), "etaSecs": eta }
    }

    #[test]
    fn the_worst_policy_is_named() {
        assert_eq!(line(&doc! { "policies": [] }), "There are no TTL policies.");
        let fine = policy("shop.carts", 10, 30.0, 1.0);
        assert_eq!(line(&doc! { "policies": [fine.clone()] }), "The only policy keeps up.");
        let idle = policy("shop.codes", 0, Bson::Null, 0.0);
        let both = line(&doc! { "policies": [fine.clone(), idle.clone()] });
        assert_eq!(both, "All 2 policies keep up.");
        let late = policy("shop.sess", 92_310, 241.0, 6.2);
        let all = doc! { "policies": [fine, late.clone(), idle] };
        assert_eq!(
            line(&all),
            "2 policies keep up; shop.sess (at_1) is 4 min late, 92,310 documents are due, done in 6 s."
        );
        let later = policy("shop.logs", 1, 100_000.0, 0.0);
        assert_eq!(
            line(&doc! { "policies": [late, later] }),
            "shop.logs (at_1) is 27 h late, 1 document is due; another policy is late, too."
        );
    }

    #[test]
    fn a_suspension_stands_first() {
        let status = doc! {
            "policies": [policy("a.b", 5, 9000.0, 1.0)],
            "suspended": { "reason": "clockJumped" },
            "totals": { "due": 1_234_567i64, "dueIsLimit": true },
        };
        assert_eq!(
            line(&status),
            "Expiry is suspended: the clock has jumped; at least 1,234,567 documents are due."
        );
    }
}

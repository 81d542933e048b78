//! One sentence about expiry, from the reply of `ttlStatus`: the first line of the status page, of
//! `mayflydb status`, and of what systemd shows.

use mayfly_value::{RawDoc, RawValue};

use crate::expiry_state::{Circumstances, PolicyState, number, text, whole};

/// How good or bad the news are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Good,
    /// Nothing expires, as configured.
    Idle,
    /// Nothing expires, because it was switched off or paused.
    Paused,
    Warning,
    Bad,
}

impl Mood {
    /// The name of its colour and shape on the status page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Idle => "idle",
            Self::Paused => "pause",
            Self::Warning => "warn",
            Self::Bad => "bad",
        }
    }
}

/// What `ttlStatus` says in one sentence, such as `All 3 policies keep up.` What stops all of
/// expiry stands first; otherwise the policy with the most lag is named.
pub(crate) fn expiry_line(status: RawDoc<'_>, around: &Circumstances) -> (Mood, String) {
    let totals = status.get("totals").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    if let Some(suspended) = status.get("suspended").and_then(RawValue::as_document) {
        let reason = match text(suspended, "reason") {
            "clockJumped" => "the clock has jumped",
            "clockBehindData" => "the clock is earlier than the data",
            "restored" => "the data was restored from a backup",
            other => other,
        };
        return (Mood::Bad, format!("Expiry is suspended: {reason}. {}.", due(totals)));
    }
    if around.is_disk_nearly_full {
        return (Mood::Bad, "The disk is nearly full: only deletions are accepted.".to_owned());
    }
    if !around.is_monitor_enabled {
        let text = format!("Expiry is switched off (ttlMonitorEnabled). {}.", due(totals));
        return (Mood::Paused, text);
    }
    let policies = status.get("policies").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    let policies = policies.iter().filter_map(|policy| policy.value().as_document());
    of_policies(&policies.map(|it| (it, PolicyState::of(status, it, around))).collect::<Vec<_>>())
}

/// The sentence of a server whose TTL monitor runs.
fn of_policies(policies: &[(RawDoc<'_>, PolicyState)]) -> (Mood, String) {
    if policies.is_empty() {
        return (Mood::Idle, "No TTL policies yet: nothing expires.".to_owned());
    }
    let is_late = |state| matches!(state, PolicyState::Behind | PolicyState::Failing);
    let late_secs = |policy| number(policy, "oldestOverdueSecs").unwrap_or(0.0);
    let mut late: Vec<_> = policies.iter().filter(|(_, state)| is_late(*state)).collect();
    late.sort_by(|(one, _), (other, _)| late_secs(*other).total_cmp(&late_secs(*one)));
    let count = |of| policies.iter().filter(|(_, state)| *state == of).count() as i64;
    let (paused, never) = (count(PolicyState::Paused), count(PolicyState::Never));
    let fine = (policies.len() - late.len()) as i64 - paused - never;
    let mut rest = String::new();
    if paused > 0 {
        rest += &format!(", {} paused", plural(paused, "is", "are"));
    }
    if never > 0 {
        rest += &format!(", {} nothing to delete", plural(never, "has", "have"));
    }
    let keep_up = plural(fine, "policy keeps up", "policies keep up");
    match (late.as_slice(), fine) {
        ([], 0) if never > 0 => {
            (Mood::Idle, format!("Nothing will expire: {}.", rest.trim_start_matches(", ")))
        }
        ([], 0) if paused == 1 => {
            (Mood::Paused, "The policy is paused: nothing expires.".to_owned())
        }
        ([], 0) => {
            (Mood::Paused, format!("All {} policies are paused: nothing expires.", grouped(paused)))
        }
        ([], 2..) if rest.is_empty() => (Mood::Good, format!("All {keep_up}.")),
        ([], _) => (Mood::Good, format!("{keep_up}{rest}.")),
        ([worst, others @ ..], _) => {
            let first = if fine > 0 { format!("{keep_up}{rest}; ") } else { String::new() };
            let more = match others.len() {
                0 => String::new(),
                more => format!("; {} behind", plural(more as i64, "other is", "others are")),
            };
            (Mood::Warning, format!("{first}{}{more}.", of_worst(worst.0, worst.1)))
        }
    }
}

/// The lag of a policy, how many documents are due, and how long their deletion takes.
fn of_worst(policy: RawDoc<'_>, state: PolicyState) -> String {
    let name = plain(&format!("{} ({})", text(policy, "ns"), text(policy, "index")));
    let is_limit = policy.get("dueIsLimit") == Some(RawValue::Bool(true));
    let at_least = if is_limit { "at least " } else { "" };
    let due = format!("{at_least}{} due", grouped(whole(policy, "due")));
    let late = span(number(policy, "oldestOverdueSecs").unwrap_or(0.0));
    match (state, number(policy, "etaSecs").filter(|secs| *secs > 0.0 && !is_limit)) {
        (PolicyState::Failing, _) => format!("the last visit of {name} failed, {due}"),
        (_, Some(left)) => {
            format!("{name} is {late} behind, {due}, done in {}", span(left.max(1.0)))
        }
        (_, None) => format!("{name} is {late} behind, {due}"),
    }
}

/// The number of due documents in the totals.
fn due(totals: RawDoc<'_>) -> String {
    let is_limit = totals.get("dueIsLimit") == Some(RawValue::Bool(true));
    let at_least = if is_limit { "At least " } else { "" };
    at_least.to_owned() + &plural(whole(totals, "due"), "document is due", "documents are due")
}

/// A name without control characters: a line of a terminal or of systemd has no others.
pub(crate) fn plain(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for character in name.chars() {
        match character.is_control() {
            true => plain.extend(character.escape_default()),
            false => plain.push(character),
        }
    }
    plain
}

/// A time span in its greatest two units, such as `3 min 20 s`.
pub(crate) fn span(secs: f64) -> String {
    let secs = secs.max(0.0).round() as u64;
    let (first, second, size) = match secs {
        0..60 => return format!("{secs} s"),
        60..3600 => ("min", "s", 60),
        3600..86_400 => ("h", "min", 3600),
        _ => ("d", "h", 86_400),
    };
    let per_second = if first == "d" { 3600 } else { size / 60 };
    match secs % size / per_second {
        0 => format!("{} {first}", secs / size),
        rest => format!("{} {first} {rest} {second}", secs / size),
    }
}

fn plural(count: i64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
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

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, DateTime, Document, doc};

    use super::*;

    const FINE: Circumstances =
        Circumstances { sleep_secs: 60.0, is_monitor_enabled: true, is_disk_nearly_full: false };

    fn line(status: &Document) -> String {
        let (mood, text) = expiry_line(DocBuf::from_bson(status).as_doc(), &FINE);
        format!("{}: {text}", mood.name())
    }

    fn policy(ns: &str, due: i64, late: impl Into<Bson>, eta: f64) -> Document {
        doc! { "ns": ns, "index": "at_1", "due": due, "oldestOverdueSecs": late.into(),
        "etaSecs": eta, "deleted": 7_i64 }
    }

    #[test]
    fn the_worst_policy_is_named() {
        assert_eq!(line(&doc! { "policies": [] }), "idle: No TTL policies yet: nothing expires.");
        let fine = policy("shop.carts", 10, 30.0, 1.0);
        assert_eq!(line(&doc! { "policies": [fine.clone()] }), "good: 1 policy keeps up.");
        let idle = policy("shop.codes", 0, Bson::Null, 0.0);
        let both = line(&doc! { "policies": [fine.clone(), idle.clone()] });
        assert_eq!(both, "good: All 2 policies keep up.");
        let late = policy("shop.sess", 92_310, 241.0, 6.2);
        let all = doc! { "policies": [fine, late.clone(), idle] };
        let text = "warn: 2 policies keep up; shop.sess (at_1) is 4 min 1 s behind, 92,310 due, done in 6 s.";
        assert_eq!(line(&all), text);
        let later = policy("shop.logs", 1, 100_000.0, 0.0);
        let text = "warn: shop.logs (at_1) is 1 d 3 h behind, 1 due; 1 other is behind.";
        assert_eq!(line(&doc! { "policies": [late.clone(), later] }), text);
        let mut failing = late;
        failing.insert("lastError", "no");
        let text = "warn: the last visit of shop.sess (at_1) failed, 92,310 due.";
        assert_eq!(line(&doc! { "policies": [failing] }), text);
    }

    #[test]
    fn paused_policies_and_those_without_dates_are_counted() {
        let mut paused = policy("a.b", 5, 9000.0, 0.0);
        paused.insert("paused", true);
        let never = doc! { "ns": "a.c", "index": "at_1", "due": 0_i64, "deleted": 0_i64 };
        let fine = policy("a.d", 0, Bson::Null, 0.0);
        for (policies, text) in [
            (vec![&paused], "pause: The policy is paused: nothing expires."),
            (vec![&paused, &paused], "pause: All 2 policies are paused: nothing expires."),
            (vec![&never], "idle: Nothing will expire: 1 has nothing to delete."),
            (
                vec![&fine, &paused, &never],
                "good: 1 policy keeps up, 1 is paused, 1 has nothing to delete.",
            ),
        ] {
            let policies: Vec<Document> = policies.into_iter().cloned().collect();
            assert_eq!(line(&doc! { "policies": policies }), text);
        }
    }

    #[test]
    fn what_stops_expiry_stands_first() {
        let mut status = doc! {
            "policies": [policy("a.b", 5, 9000.0, 1.0)],
            "totals": { "due": 1_234_567i64, "dueIsLimit": true },
        };
        let with = |status: &Document, around: Circumstances| {
            expiry_line(DocBuf::from_bson(status).as_doc(), &around).1
        };
        let off = Circumstances { is_monitor_enabled: false, ..FINE };
        let text =
            "Expiry is switched off (ttlMonitorEnabled). At least 1,234,567 documents are due.";
        assert_eq!(with(&status, off), text);
        let full = Circumstances { is_disk_nearly_full: true, ..off };
        let text = "The disk is nearly full: only deletions are accepted.";
        assert_eq!(with(&status, full), text);
        let since = DateTime::from_millis(0);
        status.insert("suspended", doc! { "reason": "clockJumped", "since": since });
        let text =
            "Expiry is suspended: the clock has jumped. At least 1,234,567 documents are due.";
        assert_eq!(with(&status, full), text);
    }

    /// systemd takes a line for each variable; a terminal executes escape sequences.
    #[test]
    fn a_name_cannot_break_the_line() {
        let hostile = policy("a.b\nSTOPPING=1\u{1b}[2J", 5, 9000.0, 0.0);
        let shown = line(&doc! { "policies": [hostile] });
        let text = r"warn: a.b\nSTOPPING=1\u{1b}[2J (at_1) is 2 h 30 min behind, 5 due.";
        assert_eq!(shown, text);
    }

    #[test]
    fn a_span_has_two_units() {
        for (secs, text) in [
            (0.0, "0 s"),
            (59.6, "1 min"),
            (61.0, "1 min 1 s"),
            (3600.0, "1 h"),
            (3661.0, "1 h 1 min"),
            (86_400.0 * 3.0 + 7200.0, "3 d 2 h"),
        ] {
            assert_eq!(span(secs), text);
        }
    }
}

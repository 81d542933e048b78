//! The locales that a collation may name, and the library's collation for each.
//!
//! Manual: "Collation Locales and Default Parameters". A locale must be spelled as there (`fr_CA`,
//! `de@collation=phonebook`). A locale that the library has no data for is reported as not
//! implemented.

/// A locale of the manual.
pub(super) struct Locale {
    /// The spelling of clients, without a variant.
    name: &'static str,
    /// The names of its variants.
    variants: &'static [&'static str],
    /// The library's name for it; `None` when the library has no data.
    tag: Option<&'static str>,
}

const fn locale(
    name: &'static str,
    variants: &'static [&'static str],
    tag: &'static str,
) -> Locale {
    Locale { name, variants, tag: Some(tag) }
}

/// A locale whose rules the library does not have.
const fn missing(name: &'static str, variants: &'static [&'static str]) -> Locale {
    Locale { name, variants, tag: None }
}

const SEARCH: &[&str] = &["search"];
const UNIHAN: &[&str] = &["unihan"];
const TRADITIONAL: &[&str] = &["traditional"];
const SEARCH_TRADITIONAL: &[&str] = &["search", "traditional"];

const LOCALES: &[Locale] = &[
    locale("af", &[], "af"),
    locale("am", &[], "am"),
    locale("ar", &["compat"], "ar"),
    locale("as", &[], "as"),
    locale("az", SEARCH, "az"),
    locale("be", &[], "be"),
    locale("bg", &[], "bg"),
    locale("bn", TRADITIONAL, "bn"),
    missing("bo", &[]),
    locale("bs", SEARCH, "bs"),
    locale("bs_Cyrl", &[], "bs-Cyrl"),
    locale("ca", SEARCH, "und"),
    locale("chr", &[], "chr"),
    locale("cs", SEARCH, "cs"),
    locale("cy", &[], "cy"),
    locale("da", SEARCH, "da"),
    locale("de", &["search", "eor", "phonebook"], "de"),
    locale("de_AT", &["phonebook"], "de"),
    locale("dsb", &[], "dsb"),
    missing("dz", &[]),
    locale("ee", &[], "ee"),
    locale("el", &[], "el"),
    locale("en", &[], "und"),
    locale("en_US", &[], "und"),
    locale("en_US_POSIX", &[], "en-US-posix"),
    locale("eo", &[], "eo"),
    locale("es", SEARCH_TRADITIONAL, "es"),
    locale("et", &[], "et"),
    locale("fa", &[], "fa"),
    missing("fa_AF", &[]),
    locale("fi", SEARCH_TRADITIONAL, "fi"),
    locale("fil", &[], "fil"),
    locale("fo", &[], "fo"),
    locale("fr", &[], "und"),
    locale("fr_CA", &[], "und"),
    locale("ga", &[], "und"),
    locale("gl", SEARCH, "gl"),
    locale("gu", &[], "gu"),
    locale("ha", &[], "ha"),
    missing("haw", &[]),
    locale("he", SEARCH, "he"),
    locale("hi", &[], "hi"),
    locale("hr", SEARCH, "hr"),
    locale("hsb", &[], "hsb"),
    locale("hu", &[], "hu"),
    locale("hy", &[], "hy"),
    locale("id", &[], "und"),
    locale("ig", &[], "ig"),
    locale("is", SEARCH, "is"),
    locale("it", &[], "und"),
    locale("ja", UNIHAN, "ja"),
    locale("ka", &[], "ka"),
    locale("kk", &[], "kk"),
    missing("kl", SEARCH),
    locale("km", &[], "km"),
    locale("kn", TRADITIONAL, "kn"),
    locale("ko", &["search", "searchjl", "unihan"], "ko"),
    locale("kok", &[], "kok"),
    locale("ky", &[], "ky"),
    locale("lb", &[], "und"),
    missing("lkt", &[]),
    missing("ln", &["phonetic"]),
    locale("lo", &[], "lo"),
    locale("lt", &[], "lt"),
    locale("lv", &[], "lv"),
    locale("mk", &[], "mk"),
    locale("ml", &[], "ml"),
    locale("mn", &[], "mn"),
    locale("mr", &[], "mr"),
    locale("ms", &[], "und"),
    locale("mt", &[], "mt"),
    locale("my", &[], "my"),
    locale("nb", SEARCH, "no"),
    locale("ne", &[], "ne"),
    locale("nl", &[], "und"),
    locale("nn", SEARCH, "no"),
    locale("om", &[], "om"),
    locale("or", &[], "or"),
    locale("pa", &[], "pa"),
    locale("pl", &[], "pl"),
    locale("ps", &[], "ps"),
    locale("pt", &[], "und"),
    locale("ro", &[], "ro"),
    locale("ru", &[], "ru"),
    missing("se", SEARCH),
    locale("si", &["dictionary"], "si"),
    locale("sk", SEARCH, "sk"),
    locale("sl", &[], "sl"),
    missing("smn", SEARCH),
    locale("sq", &[], "sq"),
    locale("sr", &[], "sr"),
    locale("sr_Latn", SEARCH, "sr-Latn"),
    locale("sv", SEARCH, "sv"),
    locale("sw", &[], "und"),
    locale("ta", &[], "ta"),
    locale("te", &[], "te"),
    locale("th", &[], "th"),
    locale("to", &[], "to"),
    locale("tr", SEARCH, "tr"),
    locale("ug", &[], "ug"),
    locale("uk", &[], "uk"),
    locale("ur", &[], "ur"),
    locale("vi", TRADITIONAL, "vi"),
    missing("wae", &[]),
    missing("yi", SEARCH),
    locale("yo", &[], "yo"),
    locale("zh", &["big5han", "gb2312han", "unihan", "zhuyin"], "zh"),
    locale("zh_Hant", &[], "zh-Hant"),
    locale("zu", &[], "und"),
];

/// Locales in whose text marks may be in any order, so that comparison normalizes by default.
const NORMALIZING: &[&str] = &[
    "as", "bn", "fa", "gu", "he", "hi", "km", "kn", "ml", "mr", "my", "or", "pa", "ta", "te", "th",
    "vi",
];

/// The result of looking up a locale's name.
pub(super) enum LocaleLookup {
    /// Not a locale.
    Unknown,
    /// A locale that the library has no data for.
    Missing,
    /// The library's name for it.
    Tag(String),
}

/// Defaults that depend on the locale.
pub(super) struct Defaults {
    pub(super) case_first: &'static str,
    pub(super) alternate: &'static str,
    pub(super) normalization: bool,
    pub(super) backwards: bool,
}

/// Looks up a locale.
pub(super) fn find(given: &str) -> LocaleLookup {
    let (name, variant) = match given.split_once("@collation=") {
        Some((name, variant)) => (name, Some(variant)),
        None => (given, None),
    };
    let Some(locale) = LOCALES.iter().find(|locale| locale.name == name) else {
        return LocaleLookup::Unknown;
    };
    let Some(variant) = variant else {
        return locale.tag.map_or(LocaleLookup::Missing, |tag| LocaleLookup::Tag(tag.to_owned()));
    };
    if !locale.variants.contains(&variant) {
        return LocaleLookup::Unknown;
    }
    let short = match variant {
        "phonebook" => "phonebk",
        "traditional" => "trad",
        "dictionary" => "dict",
        "compat" | "eor" | "unihan" | "zhuyin" => variant,
        _ => return LocaleLookup::Missing,
    };
    locale.tag.map_or(LocaleLookup::Missing, |tag| LocaleLookup::Tag(format!("{tag}-u-co-{short}")))
}

/// The defaults of a locale, variants included.
pub(super) fn defaults(given: &str) -> Defaults {
    let name = given.split('@').next().unwrap_or(given);
    Defaults {
        case_first: if matches!(name, "da" | "mt") { "upper" } else { "off" },
        alternate: if name == "th" { "shifted" } else { "non-ignorable" },
        normalization: NORMALIZING.contains(&name),
        backwards: name == "fr_CA",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        let tag = |name: &str| match find(name) {
            LocaleLookup::Tag(tag) => tag,
            LocaleLookup::Missing => "missing".to_owned(),
            LocaleLookup::Unknown => "no".to_owned(),
        };
        assert_eq!(tag("en_US"), "und");
        assert_eq!(tag("de@collation=phonebook"), "de-u-co-phonebk");
        assert_eq!(tag("de@collation=search"), "missing");
        for wrong in ["en_us", "en-US", "", "de@collation=pinyin", "de@collation=", "xx", "EN"] {
            assert_eq!(tag(wrong), "no", "{wrong}");
        }
    }

    #[test]
    fn names_stand_once_and_in_order() {
        assert!(LOCALES.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}

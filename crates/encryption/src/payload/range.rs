//! The parameters of a range index, which its edges depend on. Newer clients send those that they
//! used with each payload (`sp`, `pn`, `tf`, `mn`, `mx`), and the definition of the field has them,
//! too.

use mayfly_base::{Error, Result};
use mayfly_value::{Number, RawDoc, RawValue, ValueBuf, compare_values};

/// The parameters of a range index; `None` for those that are not given.
#[derive(Clone, Debug, Default)]
pub struct RangeOptions {
    /// Levels of the tree of edges that are left out between two that are used.
    pub sparsity: Option<i64>,
    /// Decimal digits of floating-point values.
    pub precision: Option<i64>,
    /// Levels of the tree that are left out at the root.
    pub trim_factor: Option<i64>,
    /// The least value.
    pub min: Option<ValueBuf>,
    /// The greatest value.
    pub max: Option<ValueBuf>,
}

impl RangeOptions {
    /// Reads the parameters by their names. Null and numbers that are not whole count as absent.
    pub(crate) fn read(document: RawDoc<'_>, names: [&str; 5]) -> RangeOptions {
        let [sparsity, precision, trim_factor, min, max] =
            names.map(|name| document.get(name).filter(|value| *value != RawValue::Null));
        let whole = |value: Option<RawValue<'_>>| {
            value.and_then(Number::from_value).and_then(Number::to_i64_exact)
        };
        RangeOptions {
            sparsity: whole(sparsity),
            precision: whole(precision),
            trim_factor: whole(trim_factor),
            min: min.map(RawValue::to_owned),
            max: max.map(RawValue::to_owned),
        }
    }

    /// Checks the parameters of a payload against those of the field, where both are given. With
    /// other parameters, the edges of a query are not those of stored values.
    ///
    /// # Errors
    /// 2 BadValue.
    pub(crate) fn check(&self, payload: &RangeOptions, path: &str) -> Result<()> {
        let numbers = [
            ("sparsity", self.sparsity, payload.sparsity),
            ("precision", self.precision, payload.precision),
            ("trimFactor", self.trim_factor, payload.trim_factor),
        ];
        let numbers = numbers.map(|(name, declared, used)| {
            (name, declared.zip(used).is_none_or(|(declared, used)| declared == used))
        });
        let is_same = |declared: &Option<ValueBuf>, used: &Option<ValueBuf>| {
            let both = declared.as_ref().zip(used.as_ref());
            both.is_none_or(|(declared, used)| {
                compare_values(declared.as_raw(), used.as_raw()).is_eq()
            })
        };
        let bounds = [("min", &self.min, &payload.min), ("max", &self.max, &payload.max)]
            .map(|(name, declared, used)| (name, is_same(declared, used)));
        match numbers.iter().chain(&bounds).find(|(_, is_same)| !is_same) {
            None => Ok(()),
            Some((name, _)) => Err(Error::bad_value(format!(
                "the encrypted range for '{path}' has another '{name}' than the field"
            ))),
        }
    }
}

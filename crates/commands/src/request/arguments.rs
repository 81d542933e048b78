//! Declarations that several commands share.

use mayfly_value::arguments::{Argument, Form};

/// The fields of `cursor`.
pub(crate) const CURSOR: &[Argument] = &[Argument::whole("batchSize").at_least(0)];

/// `hint`, for which null is a value of the wrong type.
pub(crate) const HINT: Argument = Argument::one_of("hint", &[Form::String, Form::Document])
    .null_is_value()
    .refused_with(9, "Hint must be a string or an object, not {}");

/// `encryptionInformation`: the definition of the collection's encrypted fields.
pub(crate) const INFORMATION: Argument = Argument::document("encryptionInformation").since("6.0");

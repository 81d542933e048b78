//! The types of BSON: their bytes and their names.

/// BSON type bytes.
#[allow(missing_docs, reason = "the names of the BSON specification")]
pub mod ty {
    pub const DOUBLE: u8 = 0x01;
    pub const STRING: u8 = 0x02;
    pub const DOCUMENT: u8 = 0x03;
    pub const ARRAY: u8 = 0x04;
    pub const BINARY: u8 = 0x05;
    pub const UNDEFINED: u8 = 0x06;
    pub const OBJECT_ID: u8 = 0x07;
    pub const BOOL: u8 = 0x08;
    pub const DATE: u8 = 0x09;
    pub const NULL: u8 = 0x0A;
    pub const REGEX: u8 = 0x0B;
    pub const DB_POINTER: u8 = 0x0C;
    pub const CODE: u8 = 0x0D;
    pub const SYMBOL: u8 = 0x0E;
    pub const CODE_W_SCOPE: u8 = 0x0F;
    pub const INT32: u8 = 0x10;
    pub const TIMESTAMP: u8 = 0x11;
    pub const INT64: u8 = 0x12;
    pub const DECIMAL: u8 = 0x13;
    pub const MAX_KEY: u8 = 0x7F;
    pub const MIN_KEY: u8 = 0xFF;
}

/// The type's name as the reference prints it in errors and `$type` accepts it.
pub fn type_name(type_byte: u8) -> &'static str {
    match type_byte {
        ty::MIN_KEY => "minKey",
        ty::UNDEFINED => "undefined",
        ty::NULL => "null",
        ty::DOUBLE => "double",
        ty::INT32 => "int",
        ty::INT64 => "long",
        ty::DECIMAL => "decimal",
        ty::STRING => "string",
        ty::SYMBOL => "symbol",
        ty::DOCUMENT => "object",
        ty::ARRAY => "array",
        ty::BINARY => "binData",
        ty::OBJECT_ID => "objectId",
        ty::BOOL => "bool",
        ty::DATE => "date",
        ty::TIMESTAMP => "timestamp",
        ty::REGEX => "regex",
        ty::DB_POINTER => "dbPointer",
        ty::CODE => "javascript",
        ty::CODE_W_SCOPE => "javascriptWithScope",
        ty::MAX_KEY => "maxKey",
        _ => "unknown",
    }
}

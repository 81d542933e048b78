//! The defaults in the table of parameters are those of a new server.

use mayfly_service::parameters::{SetAt, TABLE, Value};
use mayfly_testkit::Fixture;

/// Parameters whose defaults depend on the machine.
const BY_MEMORY: &[&str] =
    &["maxIndexBuildMemoryUsageMegabytes", "maxOperationMemoryBytes", "memoryLimitMB"];

#[test]
fn help_lines_name_the_defaults() {
    let fixture = Fixture::in_memory();
    for row in TABLE {
        let (name, help) = (row.name, row.help);
        assert!(help.ends_with('.') && help.len() > 20, "{name}: {help}");
        let default =
            help.split_once(" Default: ").map(|(_, default)| default.trim_end_matches('.'));
        assert_eq!(default.is_none(), row.set_at == SetAt::Never, "{name}: {help}");
        let Some(default) = default.filter(|_| !BY_MEMORY.contains(&name)) else { continue };
        match (row.get)(&fixture.service) {
            Value::Bool(value) => assert_eq!(default, value.to_string(), "{name}"),
            Value::Number(value) => assert_eq!(default, value.to_string(), "{name}"),
            Value::Double(value) => assert_eq!(default, value.to_string(), "{name}"),
            Value::Word(value) => assert_eq!(default, value, "{name}"),
            Value::Text(value) if value.is_empty() => assert_eq!(default, "empty", "{name}"),
            Value::Text(value) => assert_eq!(default, value, "{name}"),
            Value::List(_) | Value::Document(_) => {}
        }
    }
}

//! The parameters, one row each.

use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::limits::MAX_WIRE_DOCUMENT_BYTES;
use mayfly_base::{is_client_data_redacted, redact_client_data};
use mayfly_query::PlannerSettings;
use mayfly_storage::{TtlIndexRules, TtlParameters};
use mayfly_value::DocBuilder;
use mayfly_work::spill::Operator;

use super::{Kind, Parameter, SetAt, Value};
use crate::server::Service;
use crate::sessions::OpenTransactions;
use crate::settings::MemoryParameters;

/// The version whose features clients may expect.
pub const FEATURE_COMPATIBILITY_VERSION: &str = "8.0";

const NOT_NEGATIVE: Kind = Kind::Int { least: 0, exclusive: false };
const FROM_MINUS_ONE: Kind = Kind::Int { least: -1, exclusive: false };
const FROM_ONE: Kind = Kind::Int { least: 1, exclusive: false };
const POSITIVE: Kind = Kind::Int { least: 0, exclusive: true };
const SOME_BYTES: Kind = Kind::Long { least: 0, exclusive: true };
const ANY_BYTES: Kind = Kind::Long { least: 0, exclusive: false };
const RATIO: Kind = Kind::Double { least: 0.0, exclusive: false, most: f64::MAX };
const GROWTH: Kind = Kind::Double { least: 1.0, exclusive: true, most: f64::MAX };
const SHARE: Kind = Kind::Double { least: 0.0, exclusive: false, most: 1.0 };
/// Whatever a stored document has room for.
const DOCUMENT_BYTES: Kind = Kind::Long { least: MAX_WIRE_DOCUMENT_BYTES as i64, exclusive: false };

/// With less each document would be a file of its own.
const OPERATION_BYTES: Kind = Kind::Long { least: 64 << 10, exclusive: false };

fn memory(service: &Service) -> &MemoryParameters {
    &service.settings.memory
}

fn operator(service: &Service, operator: Operator) -> &AtomicI64 {
    memory(service).operator(operator)
}

fn ttl(service: &Service) -> &TtlParameters {
    service.store.ttl_params()
}

fn planner(service: &Service) -> &PlannerSettings {
    PlannerSettings::of_store(&service.store)
}

fn open(service: &Service) -> &OpenTransactions {
    &service.sessions.transactions
}

/// A row whose value is a number in an atomic.
macro_rules! number {
    ($name:literal, $kind:expr, |$service:ident| $place:expr) => {
        Parameter {
            name: $name,
            set_at: SetAt::Both,
            kind: $kind,
            get: |$service| Value::Number($place.load(Ordering::Relaxed)),
            set: |$service, value| {
                if let Value::Number(value) = value {
                    $place.store(*value, Ordering::Relaxed);
                }
            },
        }
    };
}

/// A row whose value is a flag in an atomic.
macro_rules! flag {
    ($name:literal, |$service:ident| $place:expr) => {
        Parameter {
            name: $name,
            set_at: SetAt::Both,
            kind: Kind::Bool,
            get: |$service| Value::Bool($place.load(Ordering::Relaxed)),
            set: |$service, value| {
                if let Value::Bool(value) = value {
                    $place.store(*value, Ordering::Relaxed);
                }
            },
        }
    };
}

/// A row whose value is a number with a fraction.
macro_rules! fraction {
    ($name:literal, $kind:expr, |$service:ident| $place:expr) => {
        Parameter {
            name: $name,
            set_at: SetAt::Both,
            kind: $kind,
            get: |$service| Value::Double($place.get()),
            set: |$service, value| {
                if let Value::Double(value) = value {
                    $place.set(*value);
                }
            },
        }
    };
}

/// A row that only tells something.
const fn told(name: &'static str, kind: Kind, get: fn(&Service) -> Value) -> Parameter {
    Parameter { name, set_at: SetAt::Never, kind, get, set: |_, _| {} }
}

/// All parameters, ascending by name.
pub const TABLE: &[Parameter] = &[
    flag!("allowDiskUseByDefault", |s| memory(s).allow_disk_use),
    flag!("auditAuthorizationSuccess", |s| s.audit.authorization_success),
    told("authSchemaVersion", NOT_NEGATIVE, |_| Value::Number(5)),
    number!("batchedDeletesTargetBatchDocs", NOT_NEGATIVE, |s| ttl(s).batch_docs),
    number!("batchedDeletesTargetBatchTimeMS", NOT_NEGATIVE, |s| ttl(s).batch_ms),
    number!("batchedDeletesTargetStagedDocBytes", NOT_NEGATIVE, |s| ttl(s).batch_bytes),
    number!("cursorTimeoutMillis", Kind::Long { least: 1, exclusive: false }, |s| s
        .cursors
        .timeout_ms),
    Parameter {
        name: "enableTestCommands",
        set_at: SetAt::Startup,
        kind: Kind::Bool,
        get: |s| Value::Bool(s.fail_points.are_enabled()),
        set: |s, value| s.fail_points.enable(*value == Value::Bool(true)),
    },
    told("featureCompatibilityVersion", Kind::Document, |_| {
        let mut doc = DocBuilder::new();
        doc.append("version", FEATURE_COMPATIBILITY_VERSION);
        Value::Document(doc.finish())
    }),
    Parameter {
        name: "honorSystemUmask",
        set_at: SetAt::Startup,
        kind: Kind::Bool,
        get: |s| Value::Bool(s.settings.honor_system_umask.load(Ordering::Relaxed)),
        set: |s, value| {
            let honors = *value == Value::Bool(true);
            s.settings.honor_system_umask.store(honors, Ordering::Relaxed);
        },
    },
    number!("internalDocumentSourceBucketAutoMaxMemoryBytes", SOME_BYTES, |s| operator(
        s,
        Operator::BucketAuto
    )),
    number!("internalDocumentSourceDensifyMaxMemoryBytes", SOME_BYTES, |s| operator(
        s,
        Operator::Densify
    )),
    number!("internalDocumentSourceGraphLookupMaxMemoryBytes", SOME_BYTES, |s| operator(
        s,
        Operator::GraphLookup
    )),
    number!("internalDocumentSourceGroupMaxMemoryBytes", SOME_BYTES, |s| operator(
        s,
        Operator::Group
    )),
    number!("internalDocumentSourceLookupCacheSizeBytes", ANY_BYTES, |s| operator(
        s,
        Operator::LookupCache
    )),
    number!("internalDocumentSourceSetWindowFieldsMaxMemoryBytes", SOME_BYTES, |s| operator(
        s,
        Operator::WindowFields
    )),
    number!("internalIndexScanStageMaxMemoryBytes", SOME_BYTES, |s| operator(
        s,
        Operator::IndexScan
    )),
    number!("internalLookupStageIntermediateDocumentMaxSizeBytes", DOCUMENT_BYTES, |s| memory(s)
        .lookup_array),
    number!("internalNearStageMaxMemoryBytes", SOME_BYTES, |s| operator(s, Operator::Near)),
    flag!("internalQueryCacheDisableInactiveEntries", |s| planner(s).active_at_once),
    fraction!("internalQueryCacheEvictionRatio", RATIO, |s| planner(s).replanned_at),
    number!("internalQueryCacheMaxEntriesPerCollection", NOT_NEGATIVE, |s| planner(s).cached_plans),
    fraction!("internalQueryCacheWorksGrowthCoefficient", GROWTH, |s| planner(s).cache_growth),
    number!("internalQueryFacetBufferSizeBytes", POSITIVE, |s| memory(s).facet_buffer),
    number!("internalQueryFacetMaxOutputDocSizeBytes", SOME_BYTES, |s| operator(
        s,
        Operator::Facet
    )),
    number!("internalQueryMaxAddToSetBytes", POSITIVE, |s| memory(s).add_to_set),
    number!("internalQueryMaxBlockingSortMemoryUsageBytes", ANY_BYTES, |s| operator(
        s,
        Operator::Sort
    )),
    number!("internalQueryMaxConcatArraysBytes", POSITIVE, |s| memory(s).concat_arrays),
    number!("internalQueryMaxPushBytes", POSITIVE, |s| memory(s).push),
    number!("internalQueryMaxScansToExplode", NOT_NEGATIVE, |s| planner(s).merged_scans),
    number!("internalQueryMaxSetUnionBytes", POSITIVE, |s| memory(s).set_union),
    fraction!("internalQueryPlanEvaluationCollFraction", SHARE, |s| planner(s).trial_share),
    number!("internalQueryPlanEvaluationMaxResults", NOT_NEGATIVE, |s| planner(s).trial_results),
    number!("internalQueryPlanEvaluationWorks", POSITIVE, |s| planner(s).trial_works),
    flag!("internalQueryPlannerEnableHashIntersection", |s| planner(s).hash_intersection),
    number!("internalQueryPlannerMaxIndexedSolutions", POSITIVE, |s| planner(s).plans),
    number!(
        "internalQuerySlotBasedExecutionHashLookupApproxMemoryUseInBytesBeforeSpill",
        SOME_BYTES,
        |s| operator(s, Operator::HashLookup)
    ),
    number!("internalQueryTopNAccumulatorBytes", POSITIVE, |s| memory(s).top_n),
    number!("internalTextOrStageMaxMemoryBytes", SOME_BYTES, |s| operator(s, Operator::TextOr)),
    number!("internalQueryJavaScriptFnTimeoutMillis", POSITIVE, |s| s.settings.script_timeout_ms),
    number!("internalQueryJavaScriptHeapSizeLimitMB", NOT_NEGATIVE, |s| s.settings.script_heap_mb),
    number!("jsHeapLimitMB", POSITIVE, |s| s.settings.any_script_heap_mb),
    flag!("lastModifiedTTL", |s| ttl(s).last_modified),
    Parameter {
        name: "logComponentVerbosity",
        set_at: SetAt::Both,
        kind: Kind::LogVerbosity,
        get: |s| Value::Document(s.settings.log_verbosity().document()),
        set: |s, value| {
            // It was tried when it was checked.
            if let Value::Document(wanted) = value
                && let Ok(changed) = s.settings.log_verbosity().changed_by(wanted.as_doc())
            {
                s.settings.set_log_verbosity(changed);
            }
        },
    },
    Parameter {
        name: "logLevel",
        set_at: SetAt::Both,
        kind: NOT_NEGATIVE,
        get: |s| Value::Number(s.settings.log_level()),
        set: |s, value| {
            if let Value::Number(level) = value {
                s.settings.set_log_level(*level);
            }
        },
    },
    Parameter {
        name: "memoryLimitMB",
        set_at: SetAt::Both,
        kind: NOT_NEGATIVE,
        get: |_| Value::Number(crate::settings::process_limit_mb()),
        set: |_, value| {
            if let Value::Number(megabytes) = value {
                crate::settings::set_process_limit_mb(*megabytes);
            }
        },
    },
    number!("maxConnectionsPerAddress", NOT_NEGATIVE, |s| s.connections.max_per_address),
    number!("maxOperationScratchBytes", NOT_NEGATIVE, |s| s.ops.scratch().operation_limit),
    number!("maxScratchBytes", NOT_NEGATIVE, |s| s.ops.scratch().limit),
    number!("maxOperationMemoryBytes", OPERATION_BYTES, |s| memory(s).operation),
    Parameter {
        name: "maxIndexBuildMemoryUsageMegabytes",
        set_at: SetAt::Both,
        kind: Kind::Int { least: 50, exclusive: false },
        get: |s| Value::Number(s.store.index_build_bytes.load(Ordering::Relaxed) >> 20),
        set: |s, value| {
            if let Value::Number(megabytes) = value {
                s.store.index_build_bytes.store(megabytes << 20, Ordering::Relaxed);
            }
        },
    },
    number!("maxTransactionLockRequestTimeoutMillis", FROM_MINUS_ONE, |s| s
        .store
        .transaction_lock_timeout_ms),
    flag!("notablescan", |s| planner(s).no_table_scan),
    Parameter {
        name: "redactClientLogData",
        set_at: SetAt::Both,
        kind: Kind::Bool,
        get: |_| Value::Bool(is_client_data_redacted()),
        set: |_, value| {
            if let Value::Bool(redacted) = value {
                redact_client_data(*redacted);
            }
        },
    },
    number!("shutdownTimeoutMillisForSignaledShutdown", NOT_NEGATIVE, |s| s
        .settings
        .signaled_shutdown_ms),
    number!("transactionLifetimeLimitSeconds", FROM_ONE, |s| open(s).lifetime_secs),
    Parameter {
        name: "minSnapshotHistoryWindowInSeconds",
        set_at: SetAt::Both,
        kind: NOT_NEGATIVE,
        get: |s| Value::Number(s.store.history().window_secs()),
        set: |s, value| {
            if let Value::Number(secs) = value {
                s.store.history().set_window_secs(*secs);
            }
        },
    },
    number!("ttlClockJumpLimitSecs", NOT_NEGATIVE, |s| ttl(s).clock_jump_limit_secs),
    number!("ttlIndexDeleteTargetDocs", NOT_NEGATIVE, |s| ttl(s).index_target_docs),
    number!("ttlIndexDeleteTargetTimeMS", NOT_NEGATIVE, |s| ttl(s).index_target_ms),
    Parameter {
        name: "ttlIndexRules",
        set_at: SetAt::Both,
        kind: Kind::Word(&["manual", "mongod8"]),
        get: |s| {
            Value::Word(match ttl(s).rules() {
                TtlIndexRules::Manual => "manual",
                TtlIndexRules::Mongod8 => "mongod8",
            })
        },
        set: |s, value| {
            ttl(s).set_rules(match value {
                Value::Word("mongod8") => TtlIndexRules::Mongod8,
                _ => TtlIndexRules::Manual,
            });
        },
    },
    flag!("ttlMonitorBatchDeletes", |s| ttl(s).batch_deletes),
    flag!("ttlMonitorEnabled", |s| ttl(s).enabled),
    Parameter {
        name: "ttlMonitorSleepSecs",
        set_at: SetAt::Both,
        kind: Kind::Int { least: 0, exclusive: true },
        get: |s| Value::Number(ttl(s).sleep_secs()),
        set: |s, value| {
            if let Value::Number(secs) = value {
                ttl(s).set_sleep_secs(*secs);
            }
        },
    },
    number!("ttlMonitorSubPassTargetSecs", NOT_NEGATIVE, |s| ttl(s).sub_pass_target_secs),
];

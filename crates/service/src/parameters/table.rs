//! The parameters, one row each.

use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::{is_client_data_redacted, redact_client_data};
use mayfly_query::PlannerSettings;
use mayfly_storage::{TtlIndexRules, TtlParameters};
use mayfly_value::DocBuilder;
use mayfly_work::spill::Operator;

use super::clients::{
    AUTH_SCHEMA_VERSION, AUTHENTICATION_MECHANISMS, AUTOMATION_SERVICE_DESCRIPTOR,
    ENABLE_TEST_COMMANDS, INGRESS_RATE_LIMITER, KEYS_ROTATION, POOL_MATCHING, QUIET,
};
use super::row::{
    ANY_BYTES, DOCUMENT_BYTES, FROM_MINUS_ONE, FROM_ONE, GROWTH, NOT_NEGATIVE, OPERATION_BYTES,
    POSITIVE, RATIO, SHARE, SOME_BYTES, flag, fraction, number, read_only,
};
use super::{Parameter, ParameterKind, SetAt, Value};
use crate::server::Service;
use crate::sessions::OpenTransactions;
use crate::settings::MemoryParameters;

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

/// All parameters, ascending by name.
pub const TABLE: &[Parameter] = &[
    KEYS_ROTATION,
    POOL_MATCHING,
    flag!(
        "allowDiskUseByDefault",
        "The default of allowDiskUse: whether sorts, groups and other operators of queries may use files. Default: true.",
        |s| memory(s).allow_disk_use
    ),
    flag!(
        "auditAuthorizationSuccess",
        "Whether the audit log also records commands that were allowed. Default: false.",
        |s| s.audit.authorization_success
    ),
    AUTH_SCHEMA_VERSION,
    AUTHENTICATION_MECHANISMS,
    AUTOMATION_SERVICE_DESCRIPTOR,
    number!(
        "batchedDeletesTargetBatchDocs",
        "Most expired documents that the TTL monitor deletes in one batch; 0 for no limit. With the default, batches grow up to 512 documents while clients' commits are not slowed down. Default: 10.",
        NOT_NEGATIVE,
        |s| ttl(s).batch_docs
    ),
    number!(
        "batchedDeletesTargetBatchTimeMS",
        "Most milliseconds that the TTL monitor collects expired documents for one batch; 0 for no limit. Default: 5.",
        NOT_NEGATIVE,
        |s| ttl(s).batch_ms
    ),
    number!(
        "batchedDeletesTargetStagedDocBytes",
        "Most bytes of expired documents that the TTL monitor deletes in one batch; 0 for no limit. Default: 2097152.",
        NOT_NEGATIVE,
        |s| ttl(s).batch_bytes
    ),
    number!(
        "cursorTimeoutMillis",
        "Milliseconds after which an idle cursor is closed. Default: 600000.",
        ParameterKind::Long { least: 1, exclusive: false },
        |s| s.cursors.timeout_ms
    ),
    ENABLE_TEST_COMMANDS,
    read_only(
        "featureCompatibilityVersion",
        "The version of the reference whose features clients may expect.",
        ParameterKind::Document,
        |s| {
            let mut doc = DocBuilder::new();
            doc.append("version", s.feature_compatibility.current());
            Value::Document(doc.finish())
        },
    ),
    Parameter {
        name: "honorSystemUmask",
        help: "Whether the permissions of new files follow the system's umask; otherwise only the server's user can read them. Default: false.",
        set_at: SetAt::Startup,
        kind: ParameterKind::Bool,
        get: |s| Value::Bool(s.settings.honor_system_umask.load(Ordering::Relaxed)),
        set: |s, value| {
            let honors = *value == Value::Bool(true);
            s.settings.honor_system_umask.store(honors, Ordering::Relaxed);
        },
    },
    INGRESS_RATE_LIMITER,
    number!(
        "internalDocumentSourceBucketAutoMaxMemoryBytes",
        "Bytes that $bucketAuto may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::BucketAuto)
    ),
    number!(
        "internalDocumentSourceDensifyMaxMemoryBytes",
        "Bytes that $densify may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::Densify)
    ),
    number!(
        "internalDocumentSourceGraphLookupMaxMemoryBytes",
        "Bytes that $graphLookup may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::GraphLookup)
    ),
    number!(
        "internalDocumentSourceGroupMaxMemoryBytes",
        "Bytes that $group may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::Group)
    ),
    number!(
        "internalDocumentSourceLookupCacheSizeBytes",
        "Bytes of results that $lookup caches for a pipeline that does not depend on the document. Default: 104857600.",
        ANY_BYTES,
        |s| operator(s, Operator::LookupCache)
    ),
    number!(
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        "Bytes that $setWindowFields may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::WindowFields)
    ),
    number!(
        "internalIndexScanStageMaxMemoryBytes",
        "Bytes of record keys that scans of indexes may hold in memory before they use files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::IndexScan)
    ),
    number!(
        "internalLookupStageIntermediateDocumentMaxSizeBytes",
        "Most bytes of a document that $lookup builds, if the next stage unwinds the array. Default: 104857600.",
        DOCUMENT_BYTES,
        |s| memory(s).lookup_array
    ),
    number!(
        "internalNearStageMaxMemoryBytes",
        "Bytes that a search by distance may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::Near)
    ),
    flag!(
        "internalQueryCacheDisableInactiveEntries",
        "Whether a cached plan is active after its first trial; otherwise a second trial has to confirm it. Default: false.",
        |s| planner(s).active_at_once
    ),
    fraction!(
        "internalQueryCacheEvictionRatio",
        "The number of works of a cached plan, as a multiple of those of its trial, after which the query is planned again. Default: 10.",
        RATIO,
        |s| planner(s).replanned_at
    ),
    number!(
        "internalQueryCacheMaxEntriesPerCollection",
        "Most plans in the plan cache of a collection. Default: 1000.",
        NOT_NEGATIVE,
        |s| planner(s).cached_plans
    ),
    fraction!(
        "internalQueryCacheWorksGrowthCoefficient",
        "The factor by which the works of an inactive plan cache entry grow when a trial needs more. Default: 2.",
        GROWTH,
        |s| planner(s).cache_growth
    ),
    number!(
        "internalQueryFacetBufferSizeBytes",
        "Accepted for clients of the reference: $facet passes each document on at once and buffers no input. Default: 104857600.",
        POSITIVE,
        |s| memory(s).facet_buffer
    ),
    number!(
        "internalQueryFacetMaxOutputDocSizeBytes",
        "Most bytes of the document that $facet returns. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::Facet)
    ),
    number!(
        "internalQueryMaxAddToSetBytes",
        "Most bytes of the array that $addToSet of a group may build. Default: 104857600.",
        POSITIVE,
        |s| memory(s).add_to_set
    ),
    number!(
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        "Bytes that a sort may hold in memory before it uses files. Default: 104857600.",
        ANY_BYTES,
        |s| operator(s, Operator::Sort)
    ),
    number!(
        "internalQueryMaxConcatArraysBytes",
        "Most bytes of the array that $concatArrays of a group may build. Default: 104857600.",
        POSITIVE,
        |s| memory(s).concat_arrays
    ),
    number!(
        "internalQueryMaxPushBytes",
        "Most bytes of the array that $push of a group may build. Default: 104857600.",
        POSITIVE,
        |s| memory(s).push
    ),
    number!(
        "internalQueryMaxScansToExplode",
        "Most index scans that a plan merges to provide a sort order. Default: 200.",
        NOT_NEGATIVE,
        |s| planner(s).merged_scans
    ),
    number!(
        "internalQueryMaxSetUnionBytes",
        "Most bytes of the array that $setUnion of a group may build. Default: 104857600.",
        POSITIVE,
        |s| memory(s).set_union
    ),
    fraction!(
        "internalQueryPlanEvaluationCollFraction",
        "The fraction of a collection that a plan may examine in its trial, if that is more than internalQueryPlanEvaluationWorks; from 0 to 1. Default: 0.",
        SHARE,
        |s| planner(s).trial_share
    ),
    number!(
        "internalQueryPlanEvaluationMaxResults",
        "Results after which a trial of plans ends. Default: 101.",
        NOT_NEGATIVE,
        |s| planner(s).trial_results
    ),
    number!(
        "internalQueryPlanEvaluationWorks",
        "Most keys and documents that a plan examines in its trial. Default: 10000.",
        POSITIVE,
        |s| planner(s).trial_works
    ),
    flag!(
        "internalQueryPlannerEnableHashIntersection",
        "Whether plans may intersect the records of several indexes. Default: false.",
        |s| planner(s).hash_intersection
    ),
    number!(
        "internalQueryPlannerMaxIndexedSolutions",
        "Most indexed plans that are tried for a query. Default: 64.",
        POSITIVE,
        |s| planner(s).plans
    ),
    number!(
        "internalQuerySlotBasedExecutionHashLookupApproxMemoryUseInBytesBeforeSpill",
        "Bytes that the table of a $lookup without an index may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::HashLookup)
    ),
    number!(
        "internalQueryTopNAccumulatorBytes",
        "Most bytes that $topN, $firstN and similar accumulators of a group may hold. Default: 104857600.",
        POSITIVE,
        |s| memory(s).top_n
    ),
    number!(
        "internalTextOrStageMaxMemoryBytes",
        "Bytes that a text search may hold in memory before it uses files. Default: 104857600.",
        SOME_BYTES,
        |s| operator(s, Operator::TextOr)
    ),
    number!(
        "internalQueryJavaScriptFnTimeoutMillis",
        "Timeout of a call of a script in milliseconds. Default: 60000.",
        POSITIVE,
        |s| s.settings.script_timeout_ms
    ),
    number!(
        "internalQueryJavaScriptHeapSizeLimitMB",
        "Megabytes that the scripts of a query may hold; 0 for jsHeapLimitMB. Default: 100.",
        NOT_NEGATIVE,
        |s| s.settings.script_heap_mb
    ),
    number!(
        "jsHeapLimitMB",
        "Upper limit of internalQueryJavaScriptHeapSizeLimitMB, in megabytes. Default: 1100.",
        POSITIVE,
        |s| s.settings.any_script_heap_mb
    ),
    flag!(
        "lastModifiedTTL",
        "Whether a TTL index on _ts expires documents by the time of their last change. Default: true.",
        |s| ttl(s).last_modified
    ),
    Parameter {
        name: "logComponentVerbosity",
        help: "Verbosity of the log by component: a document with a level from 0 to 5 for each, or -1 for that of the parent component. Default: 0 for all.",
        set_at: SetAt::Both,
        kind: ParameterKind::LogVerbosity,
        get: |s| Value::Document(s.settings.log_verbosity().document()),
        set: |s, value| {
            // The document was checked before.
            if let Value::Document(levels) = value
                && let Ok(changed) = s.settings.log_verbosity().changed_by(levels.as_doc())
            {
                s.settings.set_log_verbosity(changed);
            }
        },
    },
    Parameter {
        name: "logLevel",
        help: "Verbosity of the log for components without their own, from 0 to 5. Default: 0.",
        set_at: SetAt::Both,
        kind: ParameterKind::Level,
        get: |s| Value::Number(s.settings.log_level()),
        set: |s, value| {
            if let Value::Number(level) = value {
                s.settings.set_log_level(*level);
            }
        },
    },
    Parameter {
        name: "memoryLimitMB",
        help: "Megabytes that the process may hold; 0 for no limit. Default: three quarters of the memory, or five eighths of less than 192 MB.",
        set_at: SetAt::Both,
        kind: NOT_NEGATIVE,
        get: |_| Value::Number(crate::settings::process_limit_mb()),
        set: |_, value| {
            if let Value::Number(megabytes) = value {
                crate::settings::set_process_limit_mb(*megabytes);
            }
        },
    },
    number!(
        "maxConnectionsPerAddress",
        "Most connections from one address; 0 for no limit. Default: 0.",
        NOT_NEGATIVE,
        |s| s.connections.max_per_address
    ),
    number!(
        "maxOperationScratchBytes",
        "Most bytes of the temporary files of one operation; 0 for a quarter of the disk, at most 16 GB. Default: 0.",
        NOT_NEGATIVE,
        |s| s.ops.scratch().operation_limit
    ),
    number!(
        "maxScratchBytes",
        "Most bytes of the temporary files of all operations; 0 for half of the disk. Default: 0.",
        NOT_NEGATIVE,
        |s| s.ops.scratch().limit
    ),
    number!(
        "maxOperationMemoryBytes",
        "Bytes that one operation may hold with all of its operators. Default: a quarter of the memory, at most 1 GiB.",
        OPERATION_BYTES,
        |s| memory(s).operation
    ),
    Parameter {
        name: "maxIndexBuildMemoryUsageMegabytes",
        help: "Megabytes that all index builds of a command may hold before they use files. Default: an eighth of the memory, at most 200.",
        set_at: SetAt::Both,
        kind: ParameterKind::Int { least: 50, exclusive: false },
        get: |s| Value::Number(s.store.index_build_bytes.load(Ordering::Relaxed) >> 20),
        set: |s, value| {
            if let Value::Number(megabytes) = value {
                s.store.index_build_bytes.store(megabytes << 20, Ordering::Relaxed);
            }
        },
    },
    number!(
        "maxTransactionLockRequestTimeoutMillis",
        "Milliseconds that a statement of a transaction waits for a lock of a collection; -1 for no limit of its own. Default: 5.",
        FROM_MINUS_ONE,
        |s| s.store.transaction_lock_timeout_ms
    ),
    flag!(
        "notablescan",
        "Whether queries that would scan a whole collection fail. Default: false.",
        |s| planner(s).no_table_scan
    ),
    Parameter {
        name: "redactClientLogData",
        help: "Whether the log shows ### instead of values of documents and commands. Default: false.",
        set_at: SetAt::Both,
        kind: ParameterKind::Bool,
        get: |_| Value::Bool(is_client_data_redacted()),
        set: |_, value| {
            if let Value::Bool(redacted) = value {
                redact_client_data(*redacted);
            }
        },
    },
    QUIET,
    number!(
        "searchWaitMillis",
        "The longest time in milliseconds that a search waits for writes that its index does not have yet. Default: 1000.",
        NOT_NEGATIVE,
        |s| s.search.wait_millis
    ),
    number!(
        "shutdownTimeoutMillisForSignaledShutdown",
        "Milliseconds that running commands may continue after SIGTERM or SIGINT. The primary of several \
         servers gives them a second instead. Default: 5000.",
        NOT_NEGATIVE,
        |s| s.settings.signaled_shutdown_ms
    ),
    number!(
        "transactionLifetimeLimitSeconds",
        "Seconds after which an open transaction is aborted. Default: 60.",
        FROM_ONE,
        |s| open(s).lifetime_secs
    ),
    Parameter {
        name: "minSnapshotHistoryWindowInSeconds",
        help: "Seconds for which snapshots are kept for reads at a past time. Default: 300.",
        set_at: SetAt::Both,
        kind: NOT_NEGATIVE,
        get: |s| Value::Number(s.store.history().window_secs()),
        set: |s, value| {
            if let Value::Number(secs) = value {
                s.store.history().set_window_secs(*secs);
            }
        },
    },
    number!(
        "ttlClockJumpLimitSecs",
        "Seconds that the clock may jump without suspending expiry; 0 to trust every clock. Default: 300.",
        NOT_NEGATIVE,
        |s| ttl(s).clock_jump_limit_secs
    ),
    number!(
        "ttlIndexDeleteTargetDocs",
        "Most documents that the TTL monitor deletes in one visit to an index; 0 for no limit. Default: 50000.",
        NOT_NEGATIVE,
        |s| ttl(s).index_target_docs
    ),
    number!(
        "ttlIndexDeleteTargetTimeMS",
        "Most milliseconds of one visit of the TTL monitor to an index; 0 for no limit. Default: 1000.",
        NOT_NEGATIVE,
        |s| ttl(s).index_target_ms
    ),
    Parameter {
        name: "ttlIndexRules",
        help: "Rules of expiry where the manual and servers of version 8.x differ: manual or mongod8. Default: manual.",
        set_at: SetAt::Both,
        kind: ParameterKind::Word(&["manual", "mongod8"]),
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
    flag!(
        "ttlMonitorBatchDeletes",
        "Whether the TTL monitor deletes several documents in one batch. Default: true.",
        |s| ttl(s).batch_deletes
    ),
    flag!(
        "ttlMonitorEnabled",
        "Whether the TTL monitor deletes expired documents. Default: true.",
        |s| ttl(s).enabled
    ),
    Parameter {
        name: "ttlMonitorSleepSecs",
        help: "Seconds between two passes of the TTL monitor. Default: 60.",
        set_at: SetAt::Both,
        kind: ParameterKind::Int { least: 0, exclusive: true },
        get: |s| Value::Number(ttl(s).sleep_secs()),
        set: |s, value| {
            if let Value::Number(secs) = value {
                ttl(s).set_sleep_secs(*secs);
            }
        },
    },
    number!(
        "ttlMonitorSubPassTargetSecs",
        "Most seconds of a round of the TTL monitor over all indexes; 0 for one round. Default: 60.",
        NOT_NEGATIVE,
        |s| ttl(s).sub_pass_target_secs
    ),
];

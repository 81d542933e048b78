//! A server without scripts (`--noscripting`) refuses them as the reference does.

use mayfly_service::Scripts;
use mayfly_testkit::{Fixture, dialect};

fn fails(fixture: &Fixture, command: &str, code: i32, text: &str) {
    let reply = dialect::show(fixture.run("test", command).as_doc());
    assert!(reply.contains(&format!("code: {code}")) && reply.contains(text), "{command}: {reply}");
}

const FUNCTION: &str = "{$function: {body: 'function () { return true; }', args: [], lang: 'js'}}";

/// Commands with scripts in every place that allows one.
fn commands() -> Vec<(String, i32)> {
    const WHERE: i32 = 6_108_304;
    let stages = |stage: String| format!("{{aggregate: 'c', cursor: {{}}, pipeline: [{stage}]}}");
    let filter = "{$where: 'true'}";
    let expr = format!("{{$expr: {FUNCTION}}}");
    let accumulator = "{$accumulator: {init: '() => 0', accumulate: 's => s', accumulateArgs: [], \
                       merge: 's => s', lang: 'js'}}";
    let inside = format!("[{{$match: {expr}}}]");
    let mut all = vec![
        (stages(format!("{{$project: {{x: {FUNCTION}}}}}")), 31264),
        (stages(format!("{{$match: {expr}}}")), 31264),
        (stages(format!("{{$group: {{_id: 1, x: {accumulator}}}}}")), 31264),
        (stages(format!("{{$lookup: {{from: 'c', pipeline: {inside}, as: 'r'}}}}")), 31264),
        (stages(format!("{{$facet: {{a: {inside}}}}}")), 31264),
        (stages(format!("{{$unionWith: {{coll: 'c', pipeline: {inside}}}}}")), 31264),
        (format!("{{find: 'c', projection: {{x: {FUNCTION}}}}}"), 31264),
        (
            format!("{{update: 'c', updates: [{{q: {{}}, u: [{{$set: {{x: {FUNCTION}}}}}]}}]}}"),
            31264,
        ),
    ];
    let map_reduce = "{mapReduce: 'c', map: 'emit(1, 1)', reduce: '0', out: {inline: 1}}";
    all.push((map_reduce.to_owned(), 31264));
    for (filter, code) in [(filter, WHERE), (expr.as_str(), 31264)] {
        all.extend([
            (format!("{{find: 'c', filter: {filter}}}"), code),
            (format!("{{count: 'c', query: {filter}}}"), code),
            (format!("{{distinct: 'c', key: '_id', query: {filter}}}"), code),
            (format!("{{update: 'c', updates: [{{q: {filter}, u: {{$set: {{a: 1}}}}}}]}}"), code),
            (format!("{{findAndModify: 'c', query: {filter}, update: {{$set: {{a: 1}}}}}}"), code),
            (
                format!(
                    "{{explain: {{find: 'c', filter: {filter}}}, verbosity: 'executionStats'}}"
                ),
                code,
            ),
            (format!("{{delete: 'c', deletes: [{{q: {filter}, limit: 1}}]}}"), code),
        ]);
    }
    all
}

#[test]
fn without_scripts_they_are_refused() {
    let fixture = Fixture::in_memory();
    let texts = [
        (6_108_304, "no globalScriptEngine in $where parsing"),
        (31264, "Cannot run server-side javascript without the javascript engine enabled"),
    ];
    for scripts in [Scripts::Run, Scripts::Refused] {
        fixture.service.settings.set_scripts(scripts);
        for (command, code) in commands() {
            fixture.run("test", "{drop: 'c'}");
            fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
            if scripts == Scripts::Run {
                let reply = dialect::show(fixture.run("test", &command).as_doc());
                assert!(reply.contains("ok: 1") && !reply.contains("code: "), "{command}: {reply}");
            } else {
                let text =
                    texts.iter().find(|(known, _)| *known == code).map_or("", |(_, text)| text);
                fails(&fixture, &command, code, text);
            }
        }
    }
    fixture.ok("test", "{find: 'c', filter: {_id: 1}}");
}

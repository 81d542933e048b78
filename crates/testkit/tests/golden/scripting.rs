//! A server without scripts (`--noscripting`) refuses them as the reference does.

use mayfly_testkit::{Fixture, dialect};

fn fails(fixture: &Fixture, command: &str, code: i32, text: &str) {
    let reply = dialect::show(fixture.run("test", command).as_doc());
    assert!(reply.contains(&format!("code: {code}")) && reply.contains(text), "{command}: {reply}");
}

#[test]
fn without_scripts_they_are_refused() {
    let fixture = Fixture::in_memory();
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    let with_where = "{find: 'c', filter: {$where: 'true'}}";
    let project = |body: &str| {
        format!(
            "{{aggregate: 'c', cursor: {{}}, pipeline: [{{$project: {{x: {{$function: {{body: '{body}', args: [], lang: 'js'}}}}}}}}]}}"
        )
    };
    let with_function = project("function () { return 1; }");
    fixture.ok("test", with_where);
    fixture.ok("test", &with_function);

    fixture.service.settings.set_scripts_enabled(false);
    fails(&fixture, with_where, 6_108_304, "no globalScriptEngine in $where parsing");
    let text = "Cannot run server-side javascript without the javascript engine enabled";
    fails(&fixture, &with_function, 31264, text);
    fixture.ok("test", "{find: 'c', filter: {_id: 1}}");
}

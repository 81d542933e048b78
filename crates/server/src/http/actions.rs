//! The actions of the page: each is a command that runs with the rights of the user.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use serde_json::Value;

use super::guard::Refusal;
use super::json::object;
use super::peer::Peer;
use super::run::{CommandError, command};
use super::site::Site;

/// Whether a policy deletes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyState {
    Paused,
    Running,
}

/// `POST /actions/{name}`. The reply has the reply of the command, or its error.
pub(super) async fn act(
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Result<Json<Value>, Refusal> {
    site.identify(&peer, &headers)?;
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    let policy = || (text("ns"), text("index"));
    let is_read = name == "census";
    if site.is_read_only && !is_read {
        let text = "the page is read-only (net.http.readOnly)\n".to_owned();
        return Err((StatusCode::FORBIDDEN, text));
    }
    let ran = match name.as_str() {
        "pause" => site.change_policy(&peer, policy(), PolicyState::Paused).await,
        "continue" => site.change_policy(&peer, policy(), PolicyState::Running).await,
        "resume" => site.run(&peer, command("admin", "ttlResume", 1, |_| {})).await,
        "kill" => {
            let Some(id) = body.get("opid").and_then(Value::as_i64) else {
                return Err((StatusCode::BAD_REQUEST, "an opid is needed\n".to_owned()));
            };
            let kill = command("admin", "killOp", 1, |doc| {
                doc.append("op", id);
            });
            site.run(&peer, kill).await
        }
        "census" => site.census(&peer, policy()).await,
        _ => return Err((StatusCode::NOT_FOUND, "there is no such action\n".to_owned())),
    };
    match ran {
        Ok(reply) => Ok(Json(object(reply.as_doc()))),
        Err(error) => {
            let status = match error.is_missing_right() {
                true => StatusCode::FORBIDDEN,
                false => StatusCode::CONFLICT,
            };
            Err((status, format!("{}\n", error.text)))
        }
    }
}

fn missing(what: &str) -> CommandError {
    CommandError { code: 0, text: format!("{what} is not there any more") }
}

impl Site {
    /// Pauses a policy, or lets it continue. The rest of its options stays.
    async fn change_policy(
        &self,
        peer: &Peer,
        (ns, index): (&str, &str),
        state: PolicyState,
    ) -> Result<DocBuf, CommandError> {
        let (db, collection) = split(ns)?;
        let change = match self.index(peer, (db, collection), index).await? {
            Some(found) => {
                let options = changed(ttl_of(found.as_doc()), state);
                command(db, "collMod", collection, |doc| {
                    doc.start_document("index").append("name", index);
                    doc.append("ttl", &options).end();
                })
            }
            // The policy of a clustered collection or of a time series.
            None => {
                let options = changed(self.collection_ttl(peer, db, collection).await?, state);
                command(db, "collMod", collection, |doc| {
                    doc.append("ttl", &options);
                })
            }
        };
        self.run(peer, change).await
    }

    /// What the policy would do if it were created now, and which documents it never deletes.
    async fn census(&self, peer: &Peer, (ns, index): (&str, &str)) -> Result<DocBuf, CommandError> {
        let (db, collection) = split(ns)?;
        let Some(found) = self.index(peer, (db, collection), index).await? else {
            let text = "a census needs a TTL index".to_owned();
            return Err(CommandError { code: 0, text });
        };
        let seconds = found.as_doc().get("expireAfterSeconds").unwrap_or(RawValue::Null);
        let dry_run = command(db, "collMod", collection, |doc| {
            doc.start_document("index").append("name", index);
            doc.append("expireAfterSeconds", seconds).end().append("dryRun", true);
        });
        self.run(peer, dry_run).await
    }

    /// The definition of an index.
    async fn index(
        &self,
        peer: &Peer,
        (db, collection): (&str, &str),
        name: &str,
    ) -> Result<Option<DocBuf>, CommandError> {
        let reply = self.run(peer, command(db, "listIndexes", collection, |_| {})).await?;
        let found = first_batch(reply.as_doc()).find(|index| {
            index.get("name").and_then(RawValue::as_str) == Some(name)
                && index.get("expireAfterSeconds").is_some()
        });
        Ok(found.map(RawDoc::to_owned))
    }

    /// The option `ttl` of a collection.
    async fn collection_ttl(
        &self,
        peer: &Peer,
        db: &str,
        collection: &str,
    ) -> Result<DocBuf, CommandError> {
        // A policy of a time series is listed with the name of the series.
        let name = collection.strip_prefix("system.buckets.").unwrap_or(collection);
        let list = command(db, "listCollections", 1, |doc| {
            doc.start_document("filter").append("name", name).end();
        });
        let reply = self.run(peer, list).await?;
        let options = first_batch(reply.as_doc())
            .next()
            .ok_or_else(|| missing("the collection"))?
            .get("options")
            .and_then(RawValue::as_document);
        Ok(ttl_of(options.unwrap_or(RawDoc::EMPTY)))
    }
}

fn split(ns: &str) -> Result<(&str, &str), CommandError> {
    ns.split_once('.').ok_or_else(|| missing("the policy"))
}

fn first_batch(reply: RawDoc<'_>) -> impl Iterator<Item = RawDoc<'_>> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    let batch = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    batch.iter().filter_map(|element| element.value().as_document())
}

fn ttl_of(definition: RawDoc<'_>) -> DocBuf {
    let options = definition.get("ttl").and_then(RawValue::as_document);
    options.unwrap_or(RawDoc::EMPTY).to_owned()
}

/// The options with another state.
fn changed(options: DocBuf, state: PolicyState) -> DocBuf {
    let mut changed = DocBuilder::new();
    for element in options.as_doc().iter().filter(|it| it.name() != "paused") {
        changed.append_element(element);
    }
    if state == PolicyState::Paused {
        changed.append("paused", true);
    }
    changed.finish()
}

//! Logging in by the Rust driver, and what a server with `--auth` refuses; what is expected is
//! listed in ../README.md.

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};

type Tested = Result<(), Box<dyn std::error::Error>>;

/// `r@ot:/%` as connection strings have it.
const ROOT: &str = "r%40ot%3A%2F%25";
/// SASLprep makes one password of both.
const PASSWORD: &str = "p%40ss%3A%2F%25%E2%85%A8";
const SAME_PASSWORD: &str = "p%40ss%3A%2F%25I%C2%ADX";
const PLAIN_PASSWORD: &str = "p@ss:/%\u{2168}";

/// A client that logs in with its first command; without a login where that is empty.
async fn connect(login: &str, further: &str) -> Result<Client, Error> {
    let base = std::env::var("MONGODB_AUTH_URI").expect("MONGODB_AUTH_URI");
    Client::with_uri_str(base.replacen("//", &format!("//{login}"), 1) + further).await
}

async fn count(client: &Client) -> Result<u64, Error> {
    client.database("shop").collection::<Document>("orders").count_documents(doc! {}).await
}

/// What a new client counts.
async fn count_as(login: &str, further: &str) -> Result<u64, Error> {
    count(&connect(login, further).await?).await
}

/// The code of the server's error, also where the driver wraps the refusal of a login.
fn code<T>(result: Result<T, Error>) -> i32 {
    use std::error::Error as _;
    let error = result.err().expect("it was not refused");
    match &*error.kind {
        ErrorKind::Command(failed) => failed.code,
        ErrorKind::Authentication { .. } => {
            let source = error.source().and_then(|source| source.downcast_ref::<Box<Error>>());
            match source.map(|source| &*source.kind) {
                Some(ErrorKind::Command(failed)) => failed.code,
                _ => panic!("{error}"),
            }
        }
        _ => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn authorization() -> Tested {
    let anonymous = connect("", "").await?;
    let admin = anonymous.database("admin");
    admin.run_command(doc! {"createUser": "r@ot:/%", "pwd": PLAIN_PASSWORD, "roles": ["root"]}).await?;
    assert_eq!(code(count(&anonymous).await), 13);
    let root = connect(&format!("{ROOT}:{PASSWORD}@"), "&authSource=admin").await?;
    let shop = root.database("shop");
    for (name, password) in [("reader", PLAIN_PASSWORD), ("changing", "before")] {
        shop.run_command(doc! {"createUser": name, "pwd": password, "roles": ["read"]}).await?;
    }
    shop.collection("orders").insert_one(doc! {"_id": 1}).await?;

    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let [of_admin, of_shop] = ["admin", "shop"]
            .map(|source| format!("&authSource={source}&authMechanism={mechanism}"));
        assert_eq!(count_as(&format!("{ROOT}:{PASSWORD}@"), &of_admin).await?, 1);
        assert_eq!(count_as(&format!("reader:{PASSWORD}@"), &of_shop).await?, 1);
        assert_eq!(code(count_as("reader:wrong@", &of_shop).await), 18);
        assert_eq!(code(count_as(&format!("reader:{PASSWORD}@"), &of_admin).await), 18);
        assert_eq!(code(count_as(&format!("nobody:{PASSWORD}@"), &of_shop).await), 18);
    }
    let by = "&authSource=shop&authMechanism=SCRAM-SHA-256";
    assert_eq!(count_as(&format!("reader:{SAME_PASSWORD}@"), by).await?, 1);

    let reader = connect(&format!("reader:{PASSWORD}@"), "&authSource=shop").await?;
    let orders = reader.database("shop").collection("orders");
    assert_eq!(code(orders.insert_one(doc! {"_id": 2}).await), 13);
    let elsewhere = reader.database("other").collection::<Document>("c");
    assert_eq!(code(elsewhere.find_one(doc! {}).await), 13);

    let old = connect("changing:before@", "&authSource=shop").await?;
    assert_eq!(count(&old).await?, 1);
    shop.run_command(doc! {"updateUser": "changing", "pwd": "after"}).await?;
    assert_eq!(count(&old).await?, 1);
    assert_eq!(code(count_as("changing:before@", "&authSource=shop").await), 18);
    assert_eq!(count_as("changing:after@", "&authSource=shop").await?, 1);
    Ok(())
}

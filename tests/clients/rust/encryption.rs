//! Encrypted connections of the Rust driver and logging in by a certificate; what is expected is
//! listed in ../README.md.

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};

type Tested = Result<(), Box<dyn std::error::Error>>;

async fn find(client: &Client, database: &str) -> Result<Option<Document>, Error> {
    client.database(database).collection("orders").find_one(doc! {}).await
}

/// The code of the server's error; none where the driver says only that a login failed.
fn code<T>(result: Result<T, Error>) -> Option<i32> {
    match &*result.err().expect("it was not refused").kind {
        ErrorKind::Command(failed) => Some(failed.code),
        ErrorKind::Authentication { .. } => None,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption() -> Tested {
    let [uri, files, name] =
        ["URI", "FILES", "CLIENT_NAME"].map(|name| std::env::var(format!("MONGODB_TLS_{name}")).expect(name));
    let anonymous = Client::with_uri_str(&uri).await?;
    let first = doc! {"createUser": "root", "pwd": "secret", "roles": ["root"]};
    anonymous.database("admin").run_command(first).await?;
    assert_eq!(code(find(&anonymous, "shop").await), Some(13));

    let by_password = uri.replacen("//", "//root:secret@", 1) + "&authMechanism=SCRAM-SHA-256";
    let root = Client::with_uri_str(by_password).await?;
    let text = "x".repeat(100_000);
    root.database("shop").collection("orders").insert_one(doc! {"_id": 1, "text": &text}).await?;
    let role = doc! {"role": "readWrite", "db": "shop"};
    root.database("$external").run_command(doc! {"createUser": name, "roles": [role]}).await?;

    let by_certificate = format!("{uri}&authMechanism=MONGODB-X509");
    let file = format!("&tlsCertificateKeyFile={files}/client.pem");
    let ann = Client::with_uri_str(by_certificate.clone() + &file).await?;
    let found = find(&ann, "shop").await?.ok_or("the order")?;
    assert_eq!(found.get_str("text")?, text);
    assert_eq!(code(find(&ann, "other").await), Some(13));

    let without = Client::with_uri_str(by_certificate).await?;
    assert_eq!(code(find(&without, "shop").await), None);

    let plain = uri.split_once('?').ok_or("options")?.0.to_owned() + "?";
    let stranger = uri.replace("authority.crt", "stranger.crt") + "&";
    for (other, why) in [(plain, "I/O error"), (stranger, "UnknownIssuer")] {
        let client = Client::with_uri_str(other + "serverSelectionTimeoutMS=1000").await?;
        let failed = find(&client, "shop").await.expect_err(why).to_string();
        assert!(failed.contains(why), "{failed}");
    }
    Ok(())
}

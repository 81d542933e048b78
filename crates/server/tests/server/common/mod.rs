//! A server process and a client of a few lines, for the tests that kill one and cut the other off.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawValue};

/// A command as one message.
pub(crate) fn message(command: &Document) -> Vec<u8> {
    let body = DocBuf::from_bson(command);
    let mut message = Vec::new();
    for word in [21 + body.as_bytes().len() as i32, 1, 0, 2013, 0] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(body.as_bytes());
    message
}

/// The same by OP_QUERY, with the database in the message's own header.
fn legacy_message(db: &str, command: &Document) -> Vec<u8> {
    let body = DocBuf::from_bson(command);
    let name = format!("{db}.$cmd\0");
    let mut message = Vec::new();
    for word in [28 + name.len() as i32 + body.as_bytes().len() as i32, 1, 0, 2004, 0] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    message.extend_from_slice(name.as_bytes());
    message.extend_from_slice(&0i32.to_le_bytes());
    message.extend_from_slice(&(-1i32).to_le_bytes());
    message.extend_from_slice(body.as_bytes());
    message
}

/// A running server, killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(folder: &Path) -> Server {
        Self::start_with(folder, &[])
    }

    /// With further options of the command line.
    pub(crate) fn start_with(folder: &Path, options: &[&str]) -> Server {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_mayflydb")), folder, options)
    }

    /// By a command that passes its arguments on to the program.
    pub(crate) fn start_by(mut command: Command, folder: &Path, options: &[&str]) -> Server {
        command.arg("--dbpath").arg(folder);
        Self::start_in_default_folder(command, options)
    }

    /// The same, over the folder that the program takes by itself.
    pub(crate) fn start_in_default_folder(mut command: Command, options: &[&str]) -> Server {
        let mut child =
            command.args(["--port", "0"]).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert!(
                lines.read_line(&mut line).unwrap() > 0,
                "the server ended before it was ready"
            );
            if let Some(port) = port_of(&line) {
                break port;
            }
        };
        // The pipe must not fill up.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Server { child, port }
    }

    /// With its log in a file.
    pub(crate) fn start_logging(folder: &Path, log: &Path, options: &[&str]) -> Server {
        Self::start_logging_to(Stdio::inherit(), folder, log, options)
    }

    /// The same, and what it prints goes there.
    pub(crate) fn start_logging_to(
        out: Stdio,
        folder: &Path,
        log: &Path,
        options: &[&str],
    ) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mayflydb"));
        command.stdout(out);
        Self::start_logging_by(command, folder, log, options)
    }

    /// The same, by a command that passes its arguments on to the program.
    pub(crate) fn start_logging_by(
        mut command: Command,
        folder: &Path,
        log: &Path,
        options: &[&str],
    ) -> Server {
        command.args(["--port", "0", "--dbpath"]).arg(folder);
        let mut child = command.arg("--logpath").arg(log).args(options).spawn().unwrap();
        loop {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            if let Some(port) = text.lines().find_map(port_of) {
                return Server { child, port };
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended before it was ready: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }
}

/// The port in the line that says that the server is ready.
fn port_of(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once(" ready on 127.0.0.1:")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client without a driver: one message, one reply.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn run(&mut self, command: &Document) -> std::io::Result<DocBuf> {
        self.0.write_all(&message(command))?;
        self.reply()
    }

    fn reply(&mut self) -> std::io::Result<DocBuf> {
        self.reply_at(17)
    }

    /// Sends a command by OP_QUERY and takes the OP_REPLY.
    pub(crate) fn run_legacy(&mut self, db: &str, command: &Document) -> Document {
        self.0.write_all(&legacy_message(db, command)).unwrap();
        let reply = self.reply_at(32).unwrap();
        Document::from_reader(reply.as_bytes()).unwrap()
    }

    /// The document that begins so many bytes after the length of the message.
    fn reply_at(&mut self, start: usize) -> std::io::Result<DocBuf> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut rest = vec![0; u32::from_le_bytes(length) as usize - 4];
        self.0.read_exact(&mut rest)?;
        Ok(DocBuf::from_bytes(rest[start..].to_vec()).unwrap())
    }

    /// The reply to a command that was sent before.
    pub(crate) fn read_reply(&mut self) -> DocBuf {
        self.reply().unwrap()
    }

    pub(crate) fn ok(&mut self, command: &Document) -> DocBuf {
        let reply = self.run(command).unwrap();
        assert_eq!(reply.as_doc().get("ok"), Some(RawValue::Double(1.0)), "{command}: {reply:?}");
        reply
    }

    /// All documents of a find.
    pub(crate) fn all(&mut self, find: &Document) -> Vec<DocBuf> {
        let mut reply = self.ok(find);
        let mut out = Vec::new();
        loop {
            let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
            let batch = cursor.get("firstBatch").or(cursor.get("nextBatch"));
            let batch = batch.and_then(RawValue::as_array).unwrap();
            out.extend(batch.iter().map(|e| e.value().as_document().unwrap().to_owned()));
            match cursor.get("id") {
                Some(RawValue::Int64(0)) | None => return out,
                Some(RawValue::Int64(id)) => {
                    reply = self.ok(&doc! { "getMore": id, "collection": "c", "$db": "crash" });
                }
                other => panic!("cursor id {other:?}"),
            }
        }
    }
}

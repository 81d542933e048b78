//! An object store that is slow and sometimes fails. It accepts objects and does not store them.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::Rng;

const LARGEST_OBJECT_BYTES: usize = 64 << 20;

/// The store's address, and the number of accepted objects.
pub(crate) struct ObjectStore {
    pub(crate) port: u16,
    pub(crate) taken: Arc<AtomicU64>,
}

impl ObjectStore {
    /// Starts it; its threads end with this process.
    pub(crate) fn start() -> Result<ObjectStore> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let taken = Arc::new(AtomicU64::new(0));
        let counter = taken.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = counter.clone();
                std::thread::spawn(move || serve(stream, &counter));
            }
        });
        Ok(ObjectStore { port, taken })
    }
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, taken: &AtomicU64) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut length = 0;
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        while !line.trim().is_empty() {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length.min(LARGEST_OBJECT_BYTES)];
        reader.read_exact(&mut body)?;
        let mut random = rand::rng();
        std::thread::sleep(Duration::from_millis(random.random_range(0..400)));
        let answer = match random.random_bool(0.05) {
            true => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            false => {
                taken.fetch_add(1, Ordering::Relaxed);
                "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n"
            }
        };
        stream.write_all(answer.as_bytes())?;
    }
}

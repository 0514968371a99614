//! Frames: the units of data on a connection between two nodes.
//!
//! ```text
//! length (4) | id (8) | check (4 or 16) | payload (length)
//! ```
//!
//! If the check of a frame fails, the connection is closed, because later data cannot be trusted either.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::mac::{MAC_BYTES, MacKey};

/// The maximum size of a payload in bytes, enough for the largest log entry and its envelope.
pub(super) const PAYLOAD_BYTES_MAX: usize = 40 * 1024 * 1024;
/// The maximum size of a payload in bytes before the peer has identified itself, enough for the messages
/// of the handshake.
pub(super) const GREETING_BYTES_MAX: usize = 16 * 1024;
/// The number of bytes that are read from a socket at a time.
const READ_BYTES: usize = 64 * 1024;
/// The size of the length and the id in bytes.
const HEAD_BYTES: usize = 12;

/// The integrity check of the frames in one direction of a connection.
pub(super) enum Seal {
    /// A CRC-32C over length, id and payload, which detects damage.
    Checksum,
    /// A MAC, which detects senders without the secret. The MAC also covers the number of the frame, so
    /// that no frame can be omitted, replayed or reordered.
    Mark {
        /// The key of this connection and direction.
        key: MacKey,
        /// The number of the next frame, counted from 0.
        number: u64,
    },
}

impl Seal {
    fn bytes(&self) -> usize {
        match self {
            Self::Checksum => 4,
            Self::Mark { .. } => MAC_BYTES,
        }
    }

    /// Appends a frame to a buffer.
    pub(super) fn write(&mut self, id: u64, payload: &[u8], out: &mut BytesMut) -> io::Result<()> {
        let fits = payload.len() <= PAYLOAD_BYTES_MAX;
        let length = u32::try_from(payload.len()).ok().filter(|_| fits);
        let length = length.ok_or_else(|| too_large(payload.len(), PAYLOAD_BYTES_MAX))?;
        let mut head = [0; HEAD_BYTES];
        let (length_bytes, id_bytes) = head.split_at_mut(4);
        length_bytes.copy_from_slice(&length.to_le_bytes());
        id_bytes.copy_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&head);
        match self {
            Self::Checksum => {
                out.extend_from_slice(&checksum(&head, payload).to_le_bytes());
            }
            Self::Mark { key, number } => {
                out.extend_from_slice(&key.mac(&[&number.to_le_bytes(), &head, payload]));
                *number += 1;
            }
        }
        out.extend_from_slice(payload);
        Ok(())
    }

    fn verify(&mut self, head: &[u8], check: &[u8], payload: &[u8]) -> bool {
        match self {
            Self::Checksum => check == checksum(head, payload).to_le_bytes(),
            Self::Mark { key, number } => {
                let right = key.verify(&[&number.to_le_bytes(), head, payload], check);
                *number += 1;
                right
            }
        }
    }
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), payload)
}

fn too_large(length: usize, max: usize) -> io::Error {
    let text = format!("a message of {length} bytes is larger than the maximum of {max} bytes");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A reader of consecutive frames.
pub(super) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    seal: Seal,
    payload_bytes_max: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Creates a reader of a stream. It accepts only small frames until [`Self::trust`] is called.
    pub(super) fn new(stream: R, seal: Seal) -> Self {
        let payload_bytes_max = GREETING_BYTES_MAX;
        Self { stream, buffer: BytesMut::new(), seal, payload_bytes_max }
    }

    /// Permits frames of full size. Called when the peer has identified itself.
    pub(super) fn trust(&mut self) {
        self.payload_bytes_max = PAYLOAD_BYTES_MAX;
    }

    /// Sets the integrity check for all following frames.
    pub(super) fn set_seal(&mut self, seal: Seal) {
        self.seal = seal;
    }

    /// Reads exactly `N` bytes that are not part of a frame.
    pub(super) async fn read_raw<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        while self.buffer.len() < N {
            self.fill().await?;
        }
        let mut raw = [0; N];
        self.buffer.copy_to_slice(&mut raw);
        Ok(raw)
    }

    /// Reads the id and the payload of the next frame. Cancel-safe: dropping the future loses no
    /// data.
    pub(super) async fn read(&mut self) -> io::Result<(u64, Bytes)> {
        let before_payload = HEAD_BYTES + self.seal.bytes();
        loop {
            if let Some((head, rest)) = self.buffer.split_first_chunk::<HEAD_BYTES>() {
                let [a, b, c, d, id @ ..] = *head;
                let length =
                    usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                if length > self.payload_bytes_max {
                    return Err(too_large(length, self.payload_bytes_max));
                }
                if let Some((check, rest)) = rest.split_at_checked(self.seal.bytes())
                    && let Some(payload) = rest.get(..length)
                {
                    if !self.seal.verify(head, check, payload) {
                        let text = "a message is damaged, or its sender has a different \
                            cluster secret";
                        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                    }
                    let id = u64::from_le_bytes(id);
                    self.buffer.advance(before_payload);
                    return Ok((id, self.buffer.split_to(length).freeze()));
                }
                let missing = (before_payload + length).saturating_sub(self.buffer.len());
                self.buffer.reserve(missing.max(READ_BYTES));
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES {
            self.buffer.reserve(READ_BYTES);
        }
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::secret::ClusterSecret;
    use super::*;

    fn seals(with_mac: bool) -> (Seal, Seal) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let key = ClusterSecret::read(&path).unwrap().derive("test", &[]);
        let seal = |key: &MacKey| match with_mac {
            true => Seal::Mark { key: key.clone(), number: 0 },
            false => Seal::Checksum,
        };
        (seal(&key), seal(&key))
    }

    fn read_all(bytes: &[u8], seal: Seal) -> (Vec<(u64, Bytes)>, io::Error) {
        let mut reader = FrameReader::new(bytes, seal);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut frames = Vec::new();
            loop {
                match reader.read().await {
                    Ok(frame) => frames.push(frame),
                    Err(error) => return (frames, error),
                }
            }
        })
    }

    proptest! {
        #[test]
        fn frames_come_back_and_no_changed_byte_gets_through(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6),
            with_mac: bool,
            place: prop::sample::Index,
            change in 1..=255_u8,
        ) {
            let (mut write, read) = seals(with_mac);
            let mut bytes = BytesMut::new();
            for (id, payload) in payloads.iter().enumerate() {
                write.write(id as u64, payload, &mut bytes).unwrap();
            }
            let (frames, end) = read_all(&bytes, read);
            prop_assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
            let expected: Vec<_> =
                payloads.iter().enumerate().map(|(id, p)| (id as u64, Bytes::from(p.clone()))).collect();
            prop_assert_eq!(&frames, &expected);
            let place = place.index(bytes.len());
            bytes[place] ^= change;
            let (found, _) = read_all(&bytes, seals(with_mac).1);
            prop_assert!(found.len() < expected.len());
            prop_assert_eq!(&found[..], &expected[..found.len()]);
        }
    }

    #[test]
    fn frames_with_a_mac_cannot_be_left_out_repeated_or_moved() {
        let (mut write, _) = seals(true);
        let mut frames = Vec::new();
        for id in 0..3 {
            let mut bytes = BytesMut::new();
            write.write(id, b"same", &mut bytes).unwrap();
            frames.push(bytes);
        }
        for (order, good) in [([0, 1, 2], 3), ([0, 0, 1], 1), ([1, 0, 2], 0), ([0, 2, 1], 1)] {
            let bytes: Vec<u8> = order.iter().flat_map(|n| frames[*n].to_vec()).collect();
            let (found, _) = read_all(&bytes, seals(true).1);
            assert_eq!(found.len(), good, "{order:?}");
        }
    }

    #[test]
    fn a_length_that_is_too_large_is_refused_before_it_is_read() {
        let (found, error) = read_all(&[0xff; 64], Seal::Checksum);
        assert!(found.is_empty());
        assert!(error.to_string().contains("larger than the maximum"), "{error}");
        // A peer that has not identified itself may send at most this many bytes.
        let mut bytes = BytesMut::new();
        Seal::Checksum.write(1, &vec![0; GREETING_BYTES_MAX + 1], &mut bytes).unwrap();
        let (found, error) = read_all(&bytes, Seal::Checksum);
        assert!(found.is_empty());
        assert!(error.to_string().contains("larger than the maximum of 16384"), "{error}");
        assert!(
            Seal::Checksum.write(1, &vec![0; PAYLOAD_BYTES_MAX + 1], &mut BytesMut::new()).is_err()
        );
    }
}

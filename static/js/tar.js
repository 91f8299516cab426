// A folder as a gzipped tar (ustar with pax headers for long names), made piece by piece while it is read.

const BLOCK = 512;
const encoder = new TextEncoder();

/** `entries`: [{path, file}]. `tell(done, bytes)` after each file. Resolves to a Blob; rejects when `signal` aborts. */
export async function packFolder(entries, tell, signal) {
  const packed = tarStream(entries, tell, signal).pipeThrough(new CompressionStream("gzip"));
  return new Response(packed).blob();
}

function tarStream(entries, tell, signal) {
  const pieces = tarPieces(entries, tell, signal);
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() { await pieces.return(); },
  });
}

async function* tarPieces(entries, tell, signal) {
  let bytes = 0;
  for (const [position, { path, file }] of entries.entries()) {
    const name = encoder.encode(path);
    if (name.length > 100) yield* paxPath(path);
    yield header(name.slice(0, 100), file.size, "0");
    let read = 0;
    const reader = file.stream().getReader();
    for (;;) {
      signal.throwIfAborted();
      const { done, value } = await reader.read();
      if (done) break;
      read += value.length;
      yield value;
    }
    if (read !== file.size) throw new Error(`${path} changed while it was read`);
    yield padding(file.size);
    bytes += file.size;
    tell(position + 1, bytes);
  }
  yield new Uint8Array(2 * BLOCK);
}

function* paxPath(path) {
  const rest = encoder.encode(` path=${path}\n`).length;
  let length = rest + 1;
  while (String(length).length + rest !== length) length = String(length).length + rest;
  const record = encoder.encode(`${length} path=${path}\n`);
  yield header(encoder.encode("pax"), record.length, "x");
  yield record;
  yield padding(record.length);
}

function header(name, size, type) {
  const block = new Uint8Array(BLOCK);
  const put = (offset, text) => block.set(encoder.encode(text), offset);
  block.set(name, 0);
  put(100, "0000644\0");
  put(108, "0000000\0");
  put(116, "0000000\0");
  put(124, size.toString(8).padStart(11, "0") + "\0");
  put(136, "00000000000\0");
  put(148, "        ");
  put(156, type);
  put(257, "ustar\0" + "00");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, sum.toString(8).padStart(6, "0") + "\0 ");
  return block;
}

function padding(size) {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}

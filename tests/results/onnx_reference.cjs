// Runs ONNX models with ONNX Runtime.
//
//   node onnx_reference.cjs FOLDER CASES.json
//
// FOLDER has node_modules. A case has a model, the name, type, shape and file of its input, and the file that each output
// is written to. Files have little-endian numbers.
const fs = require('node:fs');
const path = require('node:path');

const [folder, cases] = process.argv.slice(2);
const ort = require(path.resolve(folder, 'node_modules', 'onnxruntime-node'));

function read(file, type) {
  const bytes = fs.readFileSync(file);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  return type === 'int64' ? new BigInt64Array(buffer) : new Float32Array(buffer);
}

async function main() {
  const sessions = new Map();
  for (const each of JSON.parse(fs.readFileSync(cases, 'utf8'))) {
    if (!sessions.has(each.model))
      sessions.set(each.model, await ort.InferenceSession.create(each.model, { intraOpNumThreads: 1 }));
    const session = sessions.get(each.model);
    const input = new ort.Tensor(each.type, read(each.file, each.type), each.shape);
    const results = await session.run({ [each.input]: input });
    for (const [name, file] of Object.entries(each.outputs))
      fs.writeFileSync(file, Buffer.from(results[name].data.buffer, results[name].data.byteOffset, results[name].data.byteLength));
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

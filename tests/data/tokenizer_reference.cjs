// Encodes strings with the reference tokenizers in npm packages.
//
//   node tokenizer_reference.cjs FOLDER tokenizers TOKENIZER.json STRINGS.json IDS.json
//   node tokenizer_reference.cjs FOLDER tiktoken ENCODING STRINGS.json IDS.json
//   node tokenizer_reference.cjs FOLDER merges ENCODING TOKENIZER.json
//   node tokenizer_reference.cjs FOLDER train TOKENIZER.json TEXT OUTPUT.json
//
// FOLDER has node_modules. STRINGS.json is a list of strings, IDS.json becomes a list of lists of ids. `merges` writes
// an encoding of tiktoken, which has no merges, as a tokenizer.json. `train` lets the model of a tokenizer.json learn.
const fs = require('node:fs');
const path = require('node:path');

const [folder, command, ...rest] = process.argv.slice(2);
const load = (name) => require(path.resolve(folder, 'node_modules', name));
const read = (file) => JSON.parse(fs.readFileSync(file, 'utf8'));

async function tokenizers(file, strings, output) {
  const tokenizer = load('tokenizers').Tokenizer.fromFile(file);
  const encodings = await tokenizer.encodeBatch(read(strings), { addSpecialTokens: false });
  fs.writeFileSync(output, JSON.stringify(encodings.map((encoding) => encoding.getIds())));
}

async function tiktoken(name, strings, output) {
  const encoding = load('tiktoken').get_encoding(name);
  const ids = read(strings).map((text) => Array.from(encoding.encode(text, 'all')));
  fs.writeFileSync(output, JSON.stringify(ids));
}

// GPT-2's characters for bytes.
function alphabet() {
  const characters = [];
  let next = 256;
  for (let byte = 0; byte < 256; ++byte) {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    characters.push(String.fromCharCode(printable ? byte : next++));
  }
  return characters;
}

// The two parts of a token: what its bytes become with the tokens of lower rank only.
function parts(bytes, ranks, own) {
  const pieces = Array.from(bytes);
  for (;;) {
    let best = -1, lowest = own;
    for (let i = 0; i + 1 < pieces.length; ++i) {
      const rank = ranks.get(pieces[i] + pieces[i + 1]);
      if (rank !== undefined && rank < lowest) [best, lowest] = [i, rank];
    }
    if (best < 0) return pieces;
    pieces.splice(best, 2, pieces[best] + pieces[best + 1]);
  }
}

async function merges(name, output) {
  const encoding = read(path.resolve(folder, 'node_modules/tiktoken/encoders', `${name}.json`));
  const ranks = new Map();  // the bytes of a token, as characters up to U+00FF
  for (const line of encoding.bpe_ranks.split('\n').filter((each) => each)) {
    const [, offset, ...tokens] = line.split(' ');
    tokens.forEach((token, i) => ranks.set(Buffer.from(token, 'base64').toString('latin1'), Number(offset) + i));
  }
  const symbols = alphabet();
  const written = (bytes) => Array.from(bytes, (c) => symbols[c.charCodeAt(0)]).join('');
  const pairs = [];
  for (const [bytes, rank] of ranks) {
    if (bytes.length > 1) pairs.push([rank, parts(bytes, ranks, rank).map(written)]);
  }
  pairs.sort((a, b) => a[0] - b[0]);
  const split = { type: 'Split', pattern: { Regex: encoding.pat_str }, behavior: 'Isolated', invert: false };
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  const added = Object.entries(encoding.special_tokens).map(([content, id]) => ({
    id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true }));
  fs.writeFileSync(output, JSON.stringify({
    version: '1.0', truncation: null, padding: null, added_tokens: added, normalizer: null,
    pre_tokenizer: { type: 'Sequence', pretokenizers: [split, bytes] }, post_processor: null, decoder: bytes,
    model: { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
      fuse_unk: false, byte_fallback: false, ignore_merges: true,
      vocab: { ...Object.fromEntries(Array.from(ranks, ([token, rank]) => [written(token), rank])),
        ...encoding.special_tokens },
      merges: pairs.map((pair) => pair[1]) } }));
}

async function train(file, text, output) {
  const tokenizer = load('tokenizers').Tokenizer.fromFile(file);
  tokenizer.train([text]);
  tokenizer.save(output);
}

const commands = { tokenizers, tiktoken, merges, train };
commands[command](...rest).catch((error) => {
  console.error(error);
  process.exit(1);
});

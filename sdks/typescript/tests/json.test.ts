import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidArguments, parse, stringify } from "../src/index.js";
import { milliseconds } from "../src/duration.js";
import { cut } from "../src/limits.js";

const MAX = 1 << 20;

test("integers that a number cannot hold are bigints in both directions", () => {
  for (const digits of ["9007199254740993", "-9007199254740993", "1234567890123456789", "1".repeat(40)]) {
    const value = parse(`{"n":[${digits}, 1.5, 7]}`) as { n: unknown[] };
    assert.deepEqual(value.n, [BigInt(digits), 1.5, 7]);
    assert.equal(stringify(value, "args", MAX), `{"n":[${digits},1.5,7]}`);
  }
  assert.equal(parse("9007199254740991"), 9007199254740991);
  assert.equal(parse("0.12345678901234567"), 0.12345678901234567);
});

test("the exact parser reads what JSON.parse reads, and rejects what it rejects", () => {
  const long = "12345678901234567890";
  const good = ['{}', '[]', '{"a":{"b":[true,false,null,"x\\n\\u00e9\\ud83d\\ude00"]}}', ' [ 1 , -0.5e3 ] ', '{"__proto__":1}'];
  for (const text of good) assert.deepEqual((parse(`[${long},${text}]`) as unknown[])[1], JSON.parse(text));
  for (const text of ["", "[", "{", '{"a"}', "[1,]", "01", "tru", '"\u0001"', "[1] 2", "nul"]) {
    assert.throws(() => parse(`[${long},${text}`), SyntaxError, text);
  }
  assert.throws(() => parse("[".repeat(100_000) + long), SyntaxError);
});

test("what JSON has no text for is rejected with the field", () => {
  const cycle: unknown[] = [1n];
  cycle.push(cycle);
  for (const wrong of [NaN, { a: Infinity }, () => 1, Symbol("x"), cycle, "\ud800", { a: "\udc00" }, [1n, NaN]]) {
    assert.throws(() => stringify(wrong, "args", MAX), InvalidArguments);
  }
  assert.throws(() => stringify("ä".repeat(MAX / 2), "args", MAX), /args: expected at most 1048576 bytes/);
  assert.equal(stringify({ a: "\\ud800", b: "😀" }, "args", MAX), '{"a":"\\\\ud800","b":"😀"}');
});

test("durations are milliseconds or the server's texts", () => {
  assert.equal(milliseconds("1h30m", "x"), 5_400_000);
  assert.equal(milliseconds("250ms", "x"), 250);
  assert.equal(milliseconds(12, "x"), 12);
  for (const wrong of ["", "5", "5x", "s", -1, NaN, "1m ", " 1m"]) assert.throws(() => milliseconds(wrong, "x"), InvalidArguments);
});

test("a text is cut between characters, and lone surrogates are replaced", () => {
  assert.equal(cut("äöü", 100), "äöü");
  assert.equal(Buffer.byteLength(cut("ä".repeat(100), 51)), 51);
  assert.ok(cut("😀".repeat(100), 50).endsWith("… (cut)"));
  assert.equal(cut("a\ud800b", 100), "a\ufffdb");
});

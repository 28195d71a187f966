/**
 * JSON, exactly. JavaScript's numbers hold integers up to 2^53; a larger one is a `bigint` here, in both directions, and
 * is never rounded. Texts without such integers, nearly all, take the engine's own parser and writer.
 */

import { Buffer } from "node:buffer";

import { InvalidArguments } from "./errors.js";

/** A JSON value. Integers that a number cannot hold exactly are bigints. */
export type Json = null | boolean | number | bigint | string | readonly Json[] | { readonly [key: string]: Json };

const LONG_DIGITS = /\d{16}/;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\.)*"/y;
const SPACE = /[ \t\n\r]*/y;
/** Only lone surrogates are escaped like this by `JSON.stringify`; a backslash in a text is escaped itself. */
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f]/;
const DEPTH_MAX = 200;

/** Parses a JSON text. Throws a `SyntaxError` if it is none. */
export function parse(text: string): Json {
  if (!LONG_DIGITS.test(text)) return JSON.parse(text) as Json;
  return new Parser(text).parse();
}

class Parser {
  #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  parse(): Json {
    const value = this.#value();
    this.#match(SPACE);
    if (this.#at !== this.#text.length) throw this.#wrong();
    return value;
  }

  #value(): Json {
    this.#match(SPACE);
    const first = this.#text[this.#at];
    if (first === "{") return this.#nested(() => this.#object());
    if (first === "[") return this.#nested(() => this.#array());
    if (first === '"') return this.#string();
    for (const [word, value] of [["true", true], ["false", false], ["null", null]] as const) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    }
    return this.#number();
  }

  #nested<T>(read: () => T): T {
    if (++this.#depth > DEPTH_MAX) throw new SyntaxError(`the JSON is nested deeper than ${DEPTH_MAX}`);
    this.#at++;
    const value = read();
    this.#depth--;
    return value;
  }

  #object(): Json {
    const entries: [string, Json][] = [];
    if (this.#takes("}")) return {};
    do {
      this.#match(SPACE);
      const key = this.#string();
      if (!this.#takes(":")) throw this.#wrong();
      entries.push([key, this.#value()]);
    } while (this.#takes(","));
    if (!this.#takes("}")) throw this.#wrong();
    // Not by assignment: "__proto__" is a key like any other.
    return Object.fromEntries(entries);
  }

  #array(): Json {
    const items: Json[] = [];
    if (this.#takes("]")) return items;
    do items.push(this.#value());
    while (this.#takes(","));
    if (!this.#takes("]")) throw this.#wrong();
    return items;
  }

  #string(): string {
    const found = this.#match(STRING);
    if (!found) throw this.#wrong();
    return JSON.parse(found[0]) as string;
  }

  #number(): Json {
    const found = this.#match(NUMBER);
    if (!found?.[0]) throw this.#wrong();
    const value = Number(found[0]);
    const isInteger = found[1] === undefined && found[2] === undefined;
    return isInteger && !Number.isSafeInteger(value) ? BigInt(found[0]) : value;
  }

  #takes(mark: string): boolean {
    this.#match(SPACE);
    if (this.#text[this.#at] !== mark) return false;
    this.#at++;
    return true;
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found) this.#at += found[0].length;
    return found;
  }

  #wrong(): SyntaxError {
    return new SyntaxError(`unexpected ${this.#text[this.#at] ?? "end"} in JSON at position ${this.#at}`);
  }
}

/**
 * Returns the JSON text of a value. Throws `InvalidArguments` if there is none (a function, a cycle, NaN), or if it has
 * more than `bytesMax` bytes.
 */
export function stringify(value: unknown, field: string, bytesMax: number): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value, refuseNaN);
  } catch (error) {
    if (!holdsBigInt(value, 0)) throw new InvalidArguments(field, (error as Error).message);
    text = write(value, field);
  }
  if (text === undefined) throw new InvalidArguments(field, `a ${typeof value} cannot be written as JSON`);
  if (LONE_SURROGATE.test(text)) throw new InvalidArguments(field, "expected text in Unicode, got a lone surrogate");
  if (text.length * 3 > bytesMax) {
    const bytes = Buffer.byteLength(text);
    if (bytes > bytesMax) throw new InvalidArguments(field, `expected at most ${bytesMax} bytes of JSON, got ${bytes}`);
  }
  return text;
}

function refuseNaN(key: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${key || "value"}: JSON has no ${value}`);
  return value;
}

function holdsBigInt(value: unknown, depth: number): boolean {
  if (typeof value === "bigint") return true;
  if (typeof value !== "object" || value === null || depth > DEPTH_MAX) return false;
  return Object.values(value).some((item) => holdsBigInt(item, depth + 1));
}

/** Writes a value that contains bigints, which `JSON.stringify` refuses. */
function write(value: unknown, field: string, depth = 0): string | undefined {
  if (depth > DEPTH_MAX) throw new InvalidArguments(field, `the value is nested deeper than ${DEPTH_MAX}, or contains itself`);
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number" && !Number.isFinite(value)) throw new InvalidArguments(field, `JSON has no ${value}`);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const own = value as { toJSON?: () => unknown };
  if (typeof own.toJSON === "function") return write(own.toJSON(), field, depth + 1);
  if (Array.isArray(value)) return `[${value.map((item) => write(item, field, depth + 1) ?? "null").join(",")}]`;
  const parts: string[] = [];
  for (const [key, item] of Object.entries(value)) {
    const text = write(item, `${field}.${key}`, depth + 1);
    if (text !== undefined) parts.push(`${JSON.stringify(key)}:${text}`);
  }
  return `{${parts.join(",")}}`;
}

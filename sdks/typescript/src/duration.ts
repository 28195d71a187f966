/** Durations: milliseconds as a number, or the server's own form such as `"1h30m"`. */

import { InvalidArguments } from "./errors.js";

export type Duration = number | string;

const UNITS_MS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const PART = /(\d+(?:\.\d+)?)(ms|s|m|h|d)/gy;

/** Returns a duration in milliseconds. */
export function milliseconds(duration: Duration, field: string): number {
  if (typeof duration === "number") {
    if (Number.isFinite(duration) && duration >= 0) return duration;
  } else {
    let [total, end] = [0, 0];
    for (const match of duration.matchAll(PART)) {
      total += Number(match[1]) * UNITS_MS[match[2]!]!;
      end = match.index + match[0].length;
    }
    if (end > 0 && end === duration.length) return total;
  }
  throw new InvalidArguments(field, `expected milliseconds or a duration such as "30s", got ${String(duration)}`);
}

/** Returns a duration as the server reads it. */
export function durationText(duration: Duration, field: string): string {
  return typeof duration === "string" ? duration : `${Math.ceil(milliseconds(duration, field))}ms`;
}

/**
 * Schemas of arguments, by Standard Schema: an object of zod, valibot, arktype or any library that follows it. Nothing of
 * these libraries is imported here.
 */

import { InvalidArguments } from "./errors.js";

/** The part of Standard Schema (version 1) that is used. */
export interface Schema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Result<Output> | Promise<Result<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type Result<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Returns the value that the schema makes of `value`; throws `InvalidArguments` with the path of the first wrong field. */
export async function validate<Output>(schema: Schema<unknown, Output>, value: unknown): Promise<Output> {
  const pending = schema["~standard"].validate(value);
  const result = pending instanceof Promise ? await pending : pending;
  if (result.issues === undefined) return result.value;
  const issue = result.issues[0];
  const path = issue?.path?.map((step) => String(typeof step === "object" ? step.key : step)).join(".") ?? "";
  throw new InvalidArguments(path, issue?.message ?? "the value does not fit its schema");
}

/** The adapter of this package for the conformance suite in `sdks/conformance`: JSON lines in, JSON lines out. */

import { createInterface } from "node:readline";

import * as z from "zod";

import { Client, defineJob, InvalidArguments, parse, Permanent, request, Rejected, StillRunning, stringify, Worker } from "../src/index.js";
import type { AnyJob, Context, EnqueueOptions, JobOptions, Json, Level, Timing } from "../src/index.js";

interface Command {
  readonly id: number;
  readonly command: string;
  readonly [field: string]: Json;
}

/** A run whose handler waits for commands. */
interface ToldRun {
  readonly context: Context;
  resolve(result: Json): void;
  reject(error: Error): void;
}

const LINE_BYTES_MAX = 64 << 20;
const jobs = new Map<string, AnyJob>();
const runs = new Map<string, ToldRun>();
let [client, worker]: [Client | undefined, Worker | undefined] = [undefined, undefined];
let access: { server: string[]; token?: string } = { server: [] };

function write(line: unknown): void {
  process.stdout.write(`${stringify(line, "line", LINE_BYTES_MAX)}\n`);
}

function told(args: Json, context: Context): Promise<Json> {
  return new Promise((resolve, reject) => {
    const { jobId, executionId, type, attempt } = context;
    runs.set(executionId, { context, resolve, reject });
    context.signal.addEventListener("abort", () => {
      write({ event: "stopped", executionId });
      reject(context.signal.reason as Error);
    });
    write({ event: "run", jobId, executionId, type, attempt, args });
  });
}

function handler(kind: Json, type: string): AnyJob {
  if (kind === "told") return defineJob({ type, run: told });
  const args = z.object({ to: z.string(), count: z.int() });
  return defineJob({ type, args, run: ({ to, count }: { to: string; count: number }) => ({ to, count }) });
}

async function execute(given: Command): Promise<object> {
  const text = (name: string) => given[name] as string;
  const options = (given["options"] ?? {}) as unknown as EnqueueOptions & { runAt?: unknown };
  const run = runs.get(text("executionId"));
  switch (given.command) {
    case "hello":
      return { client: "convoke-typescript", version: "0.1.0" };
    case "connect":
      access = { server: given["servers"] as unknown as string[], ...(given["token"] === null ? {} : { token: text("token") }) };
      client = new Client(access);
      return {};
    case "register":
      jobs.set(text("type"), handler(given["handler"]!, text("type")));
      return {};
    case "start":
      worker = new Worker({
        ...access,
        jobs: [...jobs.values()],
        queues: given["queues"] as unknown as string[],
        concurrency: given["concurrency"] as number,
        drain: text("drain"),
      }).start();
      return {};
    case "stop":
      await worker?.stop();
      return {};
    case "enqueue": {
      const handle = await client!.enqueue(text("type"), given["args"], dated(options));
      return { jobId: handle.id, created: handle.created };
    }
    case "enqueueBatch": {
      const list = given["jobs"] as unknown as { type: string; args: Json; options?: EnqueueOptions }[];
      const requests = await Promise.all(list.map((job) => request(job.type, job.args, dated(job.options ?? {}))));
      const handles = await client!.enqueueBatch(requests);
      return { jobs: handles.map((handle) => ({ jobId: handle.id, created: handle.created })) };
    }
    case "wait": {
      const { status, result, error } = await client!.wait(text("jobId"), { timeout: (given["seconds"] as number) * 1_000 });
      return { status, result, error };
    }
    case "cancel":
      await client!.cancel(text("jobId"), (given["reason"] as string | null) ?? undefined);
      return {};
    case "putSchedule": {
      const timing = (given["cron"] ? { cron: given["cron"] } : { every: given["every"] }) as Timing;
      await client!.putSchedule(text("name"), timing, text("type"), given["args"], options as JobOptions);
      return {};
    }
    case "removeSchedule":
      await client!.removeSchedule(text("name"));
      return {};
    case "log":
      run!.context.log(text("message"), text("level") as Level);
      return {};
    case "progress":
      run!.context.progress(given["percent"] as number, (given["message"] as string | null) ?? undefined);
      return {};
    case "complete":
      run!.resolve(given["result"]!);
      return {};
    case "fail":
      run!.reject(given["permanent"] === true ? new Permanent(text("error")) : new Error(text("error")));
      return {};
    case "block":
      setImmediate(() => {
        const end = performance.now() + (given["seconds"] as number) * 1_000;
        while (performance.now() < end);
      });
      return {};
    default:
      throw new Unsupported(given.command);
  }
}

class Unsupported extends Error {}

function dated(options: EnqueueOptions & { runAt?: unknown }): EnqueueOptions {
  return options.runAt === undefined ? options : { ...options, runAt: new Date(options.runAt as unknown as string) };
}

function code(error: unknown): string {
  if (error instanceof Unsupported) return "unsupported";
  if (error instanceof StillRunning) return "timeout";
  if (error instanceof InvalidArguments) return "refused";
  return error instanceof Rejected ? error.code : "error";
}

for await (const line of createInterface({ input: process.stdin })) {
  const given = parse(line) as unknown as Command;
  void execute(given).then(
    (ok) => write({ id: given.id, ok }),
    (error: Error) => write({ id: given.id, error: { code: code(error), message: error.message } }),
  );
}
process.exit(0);

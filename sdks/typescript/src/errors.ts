/** Errors, by what the caller does next. */

import type { JobRecord } from "./records.js";
import type { Duration } from "./duration.js";

/** Any error of this package. */
export class ConvokeError extends Error {
  override name = "ConvokeError";
}

/** No server responded, or none can serve the request now. The same request may succeed later. */
export class Unavailable extends ConvokeError {
  override name = "Unavailable";
}

/** The server rejects the request. It must be corrected. */
export class Rejected extends ConvokeError {
  override name = "Rejected";
  readonly status: number;
  readonly code: string;
  /** The wrong field, if one is. */
  readonly field: string | null;

  constructor(status: number, code: string, message: string, field: string | null) {
    super(field === null ? message : `${field}: ${message}`);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

/** The job ended, and not by completing. */
export class NotCompleted extends ConvokeError {
  override name = "NotCompleted";
  readonly job: JobRecord;

  constructor(job: JobRecord) {
    super(`job ${job.id} is ${job.status}: ${job.error ?? "without an error"}`);
    this.job = job;
  }
}

/** The job has not ended within the time that the caller waits. */
export class StillRunning extends ConvokeError {
  override name = "StillRunning";
}

/** Arguments, options or a result do not fit their schema, or cannot be written as JSON. */
export class InvalidArguments extends ConvokeError {
  override name = "InvalidArguments";
  /** The path of the wrong value. */
  readonly field: string;

  constructor(field: string, message: string) {
    super(field === "" ? message : `${field}: ${message}`);
    this.field = field;
  }
}

/** Thrown by a handler: the job fails, and another attempt is not made. */
export class Permanent extends Error {
  override name = "Permanent";
}

/**
 * Thrown by a handler: this attempt failed, and the next one starts no earlier than `after` from now.
 *
 * The worker keeps the run for this time without a slot and then reports the failure, so the job's own backoff comes on
 * top. The time is shorter if the run's timeout ends before, or if the worker stops.
 */
export class Retry extends Error {
  override name = "Retry";
  readonly after: Duration | undefined;

  constructor(message = "the handler asks for another attempt", options: { after?: Duration } = {}) {
    super(message);
    this.after = options.after;
  }
}

/** What a worker says about itself. */

/** A logger: `console` and most others fit. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** Writes nothing but warnings and errors. */
export const quietLogger: Logger = {
  info: () => {},
  warn: (message) => console.warn(message),
  error: (message) => console.error(message),
};

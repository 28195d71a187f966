/** A handler for a sandbox: adds up numbers, and never ends for a negative one. */
export default function sum({ n }: { n: number }): number {
  let total = 0;
  for (let i = 0; i !== n; i++) {
    total += i;
    if (n < 0) i = 0;
  }
  return total;
}

// What all clients here have in common: a line of JSON comes in, a line of JSON goes out.
const readline = require('node:readline');

/** Reads what is to be asked, asks it, prints what came of it, and ends. */
exports.answer = async (ask) => {
  const lines = readline.createInterface({ input: process.stdin });
  const [line] = await require('node:events').once(lines, 'line');
  lines.close();
  const answers = await ask(JSON.parse(line));
  // Some SDKs keep timers, which would keep the process.
  process.stdout.write(`answers ${JSON.stringify(answers)}\n`, () => process.exit(0));
};

/** The same with other values. */
exports.mapped = async (object, change) => {
  const entries = Object.entries(object).map(async ([name, value]) => [name, await change(value)]);
  return Object.fromEntries(await Promise.all(entries));
};

/** What went wrong, or null. */
exports.failure = async (ask) => {
  try {
    await ask();
    return null;
  } catch (error) {
    return error.message;
  }
};

// Functions that all clients for Node share: read a line of JSON, and print a line of JSON.
const readline = require('node:readline');

/** Reads the plan, requests the flags, prints the answers, and exits. */
exports.answer = async (ask) => {
  const lines = readline.createInterface({ input: process.stdin });
  const [line] = await require('node:events').once(lines, 'line');
  lines.close();
  const answers = await ask(JSON.parse(line));
  // Timers of some SDKs would keep the process alive.
  process.stdout.write(`answers ${JSON.stringify(answers)}\n`, () => process.exit(0));
};

/** Reads the plan, follows the flag, prints each change, and exits at the end of the input. */
exports.follow = async (begin) => {
  const lines = readline.createInterface({ input: process.stdin });
  const [line] = await require('node:events').once(lines, 'line');
  lines.once('close', () => process.exit(0));
  let told;
  await begin(JSON.parse(line), (answers) => {
    const text = JSON.stringify(answers);
    if (text !== told) {
      told = text;
      process.stdout.write(`answers ${text}\n`);
    }
  });
};

/** Reads the plan, requests the flags, and requests them again for each further line of input. */
exports.again = async (begin) => {
  let ask;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    ask ??= begin(JSON.parse(line));
    process.stdout.write(`answers ${JSON.stringify(await ask())}\n`);
  }
  process.exit(0);
};

/** Returns a copy of the object with changed values. */
exports.mapped = async (object, change) => {
  const entries = Object.entries(object).map(async ([name, value]) => [name, await change(value)]);
  return Object.fromEntries(await Promise.all(entries));
};

/** Returns the message of the error, or null. */
exports.failure = async (ask) => {
  try {
    await ask();
    return null;
  } catch (error) {
    return error.message;
  }
};

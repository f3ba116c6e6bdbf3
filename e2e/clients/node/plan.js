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

/** Reads what is to be followed, follows it, prints what became of it as often as it changes, and ends with its input. */
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

/** Reads what is to be asked, asks it, and again for each line that comes in. */
exports.again = async (begin) => {
  let ask;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    ask ??= begin(JSON.parse(line));
    process.stdout.write(`answers ${JSON.stringify(await ask())}\n`);
  }
  process.exit(0);
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

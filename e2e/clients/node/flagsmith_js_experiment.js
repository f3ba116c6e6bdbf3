// Reads flags of experiments through Flagsmith's SDK for browsers, which records an exposure for each.
globalThis.window = {};
const { createFlagsmithInstance } = require('@flagsmith/flagsmith/isomorphic');
const { follow } = require('./plan.js');

follow(async (plan, print) => {
  const answers = {};
  for (const identifier of plan.identifiers) {
    const flagsmith = createFlagsmithInstance();
    await flagsmith.init({
      environmentID: plan.key,
      api: process.env.FLAGSMITH_API_URL,
      identity: identifier,
      enableEvents: true,
      eventProcessorConfig: { eventsApiUrl: plan.events, flushInterval: 50 },
    });
    answers[identifier] = Object.fromEntries(
      plan.flags.map((name) => [name, flagsmith.getExperimentFlag(name)?.value ?? null]),
    );
  }
  print(answers);
});

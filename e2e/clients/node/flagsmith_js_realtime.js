// Follows Flagsmith's realtime updates by its SDK for browsers. Node is made to look like one: with a window, and with
// what it listens by.
globalThis.window = {};
globalThis.EventSource = require('eventsource').EventSource;
const { createFlagsmithInstance } = require('flagsmith/isomorphic');
const { follow } = require('./plan.js');

follow(async (plan, tell) => {
  const api = process.env.FLAGSMITH_API_URL;
  const flagsmith = createFlagsmithInstance();
  await flagsmith.init({
    environmentID: plan.key,
    api,
    realtime: true,
    eventSourceUrl: new URL('/', api).href,
    onChange: () => tell({ flag: [flagsmith.hasFeature(plan.flag), flagsmith.getValue(plan.flag)] }),
  });
});

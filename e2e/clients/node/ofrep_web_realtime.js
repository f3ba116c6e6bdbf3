// Follows OFREP's change events through OpenFeature's provider for browsers, which listens at the address in the
// answers. Node has no `EventSource`, so the program defines one.
globalThis.EventSource = require('eventsource').EventSource;
const { OFREPWebProvider } = require('@openfeature/ofrep-web-provider');
const { OpenFeature, ProviderEvents } = require('@openfeature/web-sdk');
const { follow } = require('./plan.js');

follow(async (plan, tell) => {
  await OpenFeature.setProviderAndWait(
    new OFREPWebProvider({ baseUrl: process.env.OFREP_ENDPOINT, cacheMode: 'disabled' }),
  );
  const client = OpenFeature.getClient();
  const look = () => {
    const { value, errorCode } = client.getBooleanDetails(plan.flag, false);
    tell({ flag: [errorCode ?? value, null] });
  };
  client.addHandler(ProviderEvents.ConfigurationChanged, look);
  look();
});

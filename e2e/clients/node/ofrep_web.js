// Reads flags through OpenFeature's SDK for browsers and its OFREP provider. The provider fetches all flags at once,
// when it starts and when the context changes, and keeps them.
const { OFREPWebProvider } = require('@openfeature/ofrep-web-provider');
const { OpenFeature, ProviderEvents } = require('@openfeature/web-sdk');
const { answer } = require('./plan.js');
const { asker } = require('./questions.js');

answer(async (plan) => {
  // This version of the provider does not read the variable itself.
  const endpoint = process.env.OFREP_ENDPOINT;
  // Node has no browser storage, in which the provider would keep flags between visits.
  const provider = (baseUrl, key, more) =>
    new OFREPWebProvider({ baseUrl, headers: key ? [['X-API-Key', key]] : [], cacheMode: 'disabled', ...more });
  const client = async (domain, baseUrl, key) => {
    try {
      await OpenFeature.setProviderAndWait(domain, provider(baseUrl, key));
    } catch {
      // The status and the answers of the client show the failure.
    }
    return OpenFeature.getClient(domain);
  };
  const context = (name) => {
    const { identifier, traits } = plan.subjects[name] ?? {};
    return { targetingKey: identifier, ...traits };
  };
  const ask = asker(async (client, method, question) => {
    await OpenFeature.setContext(context(question.subject));
    return client[method](question.flag, question.default);
  });

  const plain = await client('plain', endpoint);
  const answers = [];
  for (const question of plan.questions) {
    answers.push(await ask(plain, question));
  }
  const [first] = plan.questions;
  const secret = { flag: 'fraud_threshold', type: 'integer', default: 1, subject: 'for servers' };
  await OpenFeature.setContext(context('nobody special'));
  const metadata = plain.getNumberDetails('max_items', 0).flagMetadata;
  const server = await ask(await client('server', endpoint, plan.server_key), secret);
  const wrongClient = await client('wrong', endpoint, 'harbour-client-key-of-another');
  const wrong = { status: wrongClient.providerStatus, ...(await ask(wrongClient, first)) };
  const downClient = await client('down', plan.nobody);
  const down = { status: downClient.providerStatus, ...(await ask(downClient, first)) };

  // Polls with the same context: after the first request, the provider sends the entity tag and gets answers without a
  // body.
  await OpenFeature.setContext(context('nobody special'));
  const statuses = watched(4);
  await OpenFeature.setProviderAndWait(
    'polling',
    provider(endpoint, undefined, { changeDetection: 'polling', pollInterval: 20 }),
  );
  const polling = OpenFeature.getClient('polling');
  let changes = 0;
  polling.addHandler(ProviderEvents.ConfigurationChanged, () => (changes += 1));
  const fetched = await statuses;

  return {
    questions: answers,
    metadata,
    server_key: server,
    wrong_key: wrong,
    server_down: down,
    polling: { fetched, changes, value: polling.getNumberValue('max_items', 0) },
  };
});

/** Resolves to the statuses of the next `count` answers to `fetch`. */
function watched(count) {
  const unwatched = globalThis.fetch;
  return new Promise((resolve) => {
    const statuses = [];
    globalThis.fetch = async (...request) => {
      const response = await unwatched(...request);
      statuses.push(response.status);
      if (statuses.length === count) {
        resolve([...statuses]);
      }
      return response;
    };
  });
}

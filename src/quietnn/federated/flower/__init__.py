"""The same federation as a Flower app: a strategy wrapper, a client app and a server app.

Needs the extra `quietnn[flower]`. `quietnn.federated.flower.strategy.OverTheAir` wraps any Flower strategy;
`client_app:app` and `server_app:app` are ready to run with `flwr run`.
"""
